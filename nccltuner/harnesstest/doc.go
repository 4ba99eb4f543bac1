// Package harnesstest tests the rank harness (nccltuner/harness): that it calls plugins as NCCL does, that its ranks agree
// on time and order, and that ranks with the real plugin make equal choices while plans change under them.
package harnesstest
