// Package metrics shows the daemon to Prometheus. Every scrape takes one snapshot of the daemon, so that a communicator
// that has left leaves no series behind; the number of series is bounded whatever ranks do.
package metrics
