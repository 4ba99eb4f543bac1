// Package tunersim replays recorded tables: a learner and its guard run against measured costs of a machine, with noise,
// late ranks, plans that take force late and conditions that change.
//
// Nothing here reads a file or a clock; tables come in as readers and every run is a function of its seed.
package tunersim
