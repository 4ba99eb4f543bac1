// Package tuner is the core: Step takes one event and gives back decisions. It is a pure state machine in the manner of
// etcd-io/raft's RawNode: no clock, goroutine, file, unsafe or global randomness. Time and the random seed are arguments.
package tuner
