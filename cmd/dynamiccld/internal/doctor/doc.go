// Package doctor says what is set up on this host, what NCCL would load, what is wrong and the remedy. It changes
// nothing, and every check works when the others cannot.
package doctor
