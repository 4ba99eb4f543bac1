// Package forced runs the ranks of one communicator and makes them run what it says: a small daemon of a directory of its
// own that publishes plans, looks that they are in force and what ran, and has CUDA graphs of calls timed (docs/design.md,
// decisions 22 and 23). What is measured and what becomes of it is decided by its callers.
package forced
