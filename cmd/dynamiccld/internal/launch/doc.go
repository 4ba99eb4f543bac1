// Package launch is what `dynamiccld run` and `dynamiccld env` are made of: the variables that a program needs, a daemon
// for it, and the program itself with its streams, signals and end untouched.
package launch
