// Command abigen writes the Go side of abi.h: constants, struct layouts and the table that the layout test compares
// with a C compiler. It reads a small subset of C and refuses everything else, so that a construct whose layout it does
// not know cannot slip through.
package main
