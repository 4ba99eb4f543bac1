// Package paired compares arms: groups of the same ranks on the same GPUs, of which one is plain NCCL and others have
// DynamICCL in one form or another. They make the same calls in turn within one run, so that all see the same machine and
// the same load, while those that learn go on learning (docs/design.md, decision 24).
package paired
