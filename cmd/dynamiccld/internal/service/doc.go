// Package service runs a daemon together with what surrounds it: control socket, metrics, reload and shutdown.
package service
