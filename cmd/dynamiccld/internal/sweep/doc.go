// Package sweep measures NCCL's default and every choice that a tuner can make, in place: the communicator stays, and a
// plan forces one choice after the other (docs/design.md, decision 22). It is a small daemon of its own, in a directory of
// its own.
//
// Files: TABLE.csv is the table (columns of tuner/tunersim/testdata/measurements), TABLE.points.jsonl the journal of every
// point, also of those that gave no row, with spread and with what ran, TABLE.json the machine. The journal is the truth:
// an interrupted sweep goes on from it, and the table is written anew from it.
package sweep
