package tuner_test

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// wanting wants one action for ever, tries nothing, and counts what it is told.
type wanting struct {
	want   actions.Action
	shifts int
}

func (w *wanting) Name() string                                   { return "wanting" }
func (w *wanting) Observe(state.Observation)                      {}
func (w *wanting) Propose(int) (actions.Action, []actions.Action) { return w.want, nil }
func (w *wanting) Shift(agents.Diagnosis)                         { w.shifts++ }

// A guard drops a choice after three bad calls, before the detector can be sure; nobody runs the choice after that. The
// learner must hear of the change all the same.
func TestRevertTellsTheLearner(t *testing.T) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 8}
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	for _, c := range []struct {
		name   string
		after  float64 // ring's cost after the change, the default's is 100
		shifts int
	}{
		{"the choice got three times as slow", 150, 1},
		{"nothing changed", 50, 0},
	} {
		learner := &wanting{want: ring}
		core, err := tuner.New(tuner.Config{NewLearner: func(agents.Task) agents.Learner { return learner }, Explore: true})
		if err != nil {
			t.Fatal(err)
		}
		var now state.Ns
		core.Step(now, tuner.CommJoined{Comm: comm, Shape: state.Shape{Ranks: 1, Nodes: 1}, Explore: true})
		core.Step(now, tuner.Marks{Comm: comm, Bucket: bucket, Set: classicMarks(actions.AllReduce)})
		seq := uint64(0)
		calls := func(n int, a actions.Action, us float64) (base actions.Action) {
			for i := range n {
				ns := state.Ns(us * 1000 * (1 + 0.02*float64(i%3-1)))
				now += 1e6
				core.Step(now, &tuner.Sample{Comm: comm, Seq: seq, Bucket: bucket, Bytes: 1 << 16, Action: a, Ran: a, SignalNs: ns, CounterNs: ns / 2})
				seq++
			}
			for _, p := range core.Step(now, tuner.Tick{}).Plans {
				for _, e := range p.Entries {
					base = e.Base
				}
			}
			return base
		}
		calls(20, actions.Default, 100)
		if calls(32, ring, 50) != ring {
			t.Fatalf("%s: half the cost, and not chosen", c.name)
		}
		calls(3, ring, c.after)
		calls(60, actions.Default, 100)
		if learner.shifts != c.shifts || core.Totals().Alarms != uint64(c.shifts) {
			t.Errorf("%s: the learner heard of %d changes, %d alarms; want %d", c.name, learner.shifts, core.Totals().Alarms, c.shifts)
		}
	}
}
