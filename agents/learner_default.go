package agents

import (
	"dynamiccl/actions"
	"dynamiccl/state"
)

// defaultLearner stays on NCCL's default and tries nothing: sampling and diagnosis without tuning.
type defaultLearner struct{}

func newDefault(Task) Learner { return defaultLearner{} }

func (defaultLearner) Name() string                                   { return NameDefault }
func (defaultLearner) Observe(state.Observation)                      {}
func (defaultLearner) Propose(int) (actions.Action, []actions.Action) { return actions.Default, nil }
func (defaultLearner) Shift(Diagnosis)                                {}
