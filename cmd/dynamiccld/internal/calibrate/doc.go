// Package calibrate measures, on an idle machine and before programs start, what learners want to know most, and writes
// what they choose into the store (docs/design.md, decision 23): a serving program captures CUDA graphs at its start and
// never asks again, so its choices must be known before.
//
// For each communicator shape and kind of buffers the ranks are started once. Then come rounds: every bucket's learner is asked for its next
// trial, one plan brings all of them into force at once, and each bucket is measured in a CUDA graph.
package calibrate
