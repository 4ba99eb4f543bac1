// Package control is how people ask a running daemon: HTTP and JSON over the unix socket control.sock in the directory of
// the shared files. Ranks never use it. The server side knows nothing of the daemon but Backend.
package control
