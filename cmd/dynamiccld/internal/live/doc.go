// Package live starts real daemons and real rank processes on this machine: for the demo, and for the tests and figures
// of the closed loop.
package live
