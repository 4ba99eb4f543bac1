// Package lease says who needs the daemon of a directory: every `dynamiccld run` holds a shared lock while it lives, which
// the kernel takes back however it ends.
package lease
