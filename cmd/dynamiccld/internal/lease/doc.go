// Package lease says who needs the daemon of a directory: every `dynamiccld run` holds a shared lock while it lives, which
// the kernel takes back however it ends, and what its command left behind may still come to need it.
package lease
