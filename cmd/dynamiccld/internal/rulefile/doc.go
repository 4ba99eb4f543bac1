// Package rulefile turns decision tables into the rules of NCCL's example tuner CSV and back into what a person should
// know before importing them.
package rulefile
