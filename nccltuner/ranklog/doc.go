// Package ranklog reads the logs of the rank harness (nccltuner/harness/log.h) and compares them: whether all ranks of a
// run made the same choice for every call, what the choices cost, and how soon they were good after a change.
package ranklog
