// Package agents holds the learners and the detector: pure, deterministic state machines fed with observations.
//
// A Learner serves one bucket (collective and size) of one communicator. The detector (two-sided CUSUM on log residuals
// of counter and of signal) says when what was learned may no longer hold, the diagnosis says why, and the guard keeps
// a choice only while it is measured better than NCCL's default.
package agents
