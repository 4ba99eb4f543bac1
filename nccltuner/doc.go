// Package nccltuner is the daemon's side of the shared memory: the directory where ranks and daemon meet, the records in
// which the ranks of a communicator agree, and the rings in which processes report samples.
//
// abi.h is the one truth about layout; abi_gen.go is generated from it. The C side is nccltuner/plugin. Everything that
// ranks wrote is untrusted here: files are checked before they are mapped, values before they leave the package, and a
// file that shrinks under a mapping is an error and not a crash. A file that does not pass is reported and left alone.
//
// Protocol: docs/design.md, decisions 1 to 4 and 9. A Record, Publisher, Ring, Scanner or Dir belongs to one goroutine.
package nccltuner

//go:generate go run ./internal/abigen
