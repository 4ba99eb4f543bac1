// Package state holds what is observed: units, size buckets, communicator shapes and observations of group calls.
//
// It is pure: time comes in as nanoseconds, nothing here reads a clock, a file or randomness.
package state
