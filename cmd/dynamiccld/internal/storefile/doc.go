// Package storefile reads and fills the daemon's store for commands that work without a daemon.
package storefile
