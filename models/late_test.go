package models_test

import (
	"fmt"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/models"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/tunersim"
)

// A daemon hears of many calls at once where programs run ahead of their GPU, or where it was kept from working. What is
// found must not hang on that, nor after conditions changed.
func TestPolicyLearnsHoweverManyCallsPassBetweenPlans(t *testing.T) {
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 12}
	quiet, loaded := recorded(t, "quiet"), recorded(t, "cpu-load")
	newLearner, err := models.New(agents.NameLSTM)
	if err != nil {
		t.Fatal(err)
	}
	for _, between := range []int{4, 100, 400, 2000} {
		t.Run(fmt.Sprint(between), func(t *testing.T) {
			set := quiet.Actions(bucket)
			s, err := tuner.NewSession(tuner.SessionConfig{NewLearner: newLearner, Guard: agents.DefaultGuardConfig().Budgeted(0.3),
				Topology: quiet.Topology(), Seed: 1, Buckets: []tuner.SessionBucket{{Bucket: bucket, Set: set}}})
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				table *tunersim.Table
				least float64
			}{{quiet, 1.3}, {loaded, 1.3}} {
				tell := func(a actions.Action) {
					ns, _ := c.table.Cost(bucket, a)
					s.Tell(0, slices.Index(set, a), state.Ns(ns/2), state.Ns(ns))
				}
				var choice actions.Action
				for range 40 {
					base, trials, changed := s.Plan(0)
					if choice = base; changed {
						for _, a := range slices.Clone(trials) {
							tell(a)
						}
					}
					for range between {
						tell(base)
					}
				}
				byDefault, _ := c.table.Default(bucket)
				if ns, _ := c.table.Cost(bucket, choice); byDefault/ns < c.least {
					t.Errorf("%s: %s is %.2f times as fast as NCCL's default, want %.2f", c.table.Condition, choice, byDefault/ns, c.least)
				}
			}
		})
	}
}

func recorded(t *testing.T, condition string) *tunersim.Table {
	t.Helper()
	return models.Recorded(t, "h200x4-socket-2nodes-"+condition)
}
