package tuner_test

import (
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// loyal wants one action until it hears of a change, then NCCL's default for ever.
type loyal struct{ want actions.Action }

func (l *loyal) Name() string                                   { return "loyal" }
func (l *loyal) Observe(state.Observation)                      {}
func (l *loyal) Propose(int) (actions.Action, []actions.Action) { return l.want, nil }
func (l *loyal) Shift(agents.Diagnosis)                         { l.want = actions.Default }

// A path fails for two sizes and recovers. Once that is found at one of them, the other one asks at once, and not when its own
// time has come.
func TestOneComebackTellsTheOthers(t *testing.T) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 8}
	core, err := tuner.New(tuner.Config{NewLearner: func(agents.Task) agents.Learner { return &loyal{ring} }, Explore: true})
	if err != nil {
		t.Fatal(err)
	}
	var now state.Ns
	core.Step(now, tuner.CommJoined{Comm: comm, Shape: state.Shape{Ranks: 1, Nodes: 1}, Explore: true})
	sizes := []state.Bucket{{Collective: actions.AllReduce, Log2Bytes: 12}, {Collective: actions.AllReduce, Log2Bytes: 16}}
	for _, b := range sizes {
		core.Step(now, tuner.Marks{Comm: comm, Bucket: b, Set: classicMarks(actions.AllReduce)})
	}
	seq, version := uint64(0), uint64(0)
	entries := map[state.Bucket]tuner.Entry{}
	// calls makes so many of a size, as its entry says or of an action, and gives how many of them were trials of ring.
	calls := func(b state.Bucket, n int, ringUs float64) (asked int) {
		for i := range n {
			e := entries[b]
			a, trial := e.Base, len(e.Trials) > 0
			if trial {
				a, e.Trials = e.Trials[0], e.Trials[1:]
				entries[b] = e
			}
			us := 100.0
			if a == ring {
				us = ringUs
				if trial {
					asked++
				}
			}
			ns := state.Ns(us * 1000 * (1 + 0.02*float64(i%3-1)))
			now += 1e6
			core.Step(now, &tuner.Sample{Comm: comm, Seq: seq, Bucket: b, Bytes: 1 << b.Log2Bytes, Action: a, Ran: a, SignalNs: ns, CounterNs: ns / 2, Plan: uint32(version)})
			seq++
			for _, p := range core.Step(now, tuner.Tick{}).Plans {
				clear(entries)
				for _, e := range p.Entries {
					e.Trials = slices.Clone(e.Trials)
					entries[e.Bucket] = e
				}
				version++
				core.Step(now, tuner.Published{Comm: comm, Version: version})
			}
		}
		return asked
	}
	for _, b := range sizes {
		calls(b, 20, 50)
		entries[b] = tuner.Entry{Bucket: b, Base: ring}
		calls(b, 40, 50)
		if calls(b, 1, 50); entries[b].Base != ring {
			t.Fatalf("%v: half the cost, and not chosen", b)
		}
	}
	for _, b := range sizes {
		calls(b, 100, 300)
		if asked := calls(b, 500, 300); entries[b].Base != actions.Default || asked == 0 || asked > 4 {
			t.Fatalf("%v: after the failure %v is in force, ring was asked for %d times", b, entries[b].Base, asked)
		}
	}
	first, other := sizes[0], sizes[1]
	for at := 0; calls(first, 1, 50) == 0; at++ {
		if at == 1000 {
			t.Fatal("nobody asks for what was better")
		}
	}
	calls(first, 100, 50) // the calls of a try lie apart
	if asked := calls(other, 40, 50); asked == 0 {
		t.Error("the other size does not hear of it")
	}
}
