// Package actions is the action space: what can be chosen for one collective call, in NCCL's words.
//
// It is the leaf of the import ladder and pure: no clock, goroutine, file, unsafe or randomness. Numbers of collectives,
// algorithms and protocols are NCCL's own (src/include/nccl_common.h and plugin/nccl_tuner.h, v2.30.7).
package actions
