// Package daemon is the loop round the core: shared memory in, tuner.Step, plans out. All state belongs to the goroutine
// of Run; others reach it through do.
package daemon
