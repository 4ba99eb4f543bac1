package tuner_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// trace is everything that the core decides for one stream of events, under a clock of the caller's.
func trace(t *testing.T, clock func(step int) state.Ns) string {
	t.Helper()
	newLearner, err := agents.New(agents.NameCoordinateDescent)
	if err != nil {
		t.Fatal(err)
	}
	core, err := tuner.New(tuner.Config{NewLearner: newLearner, Explore: true, Seed: 5})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	steps, version := 0, uint64(0)
	var step func(e tuner.Event)
	step = func(e tuner.Event) {
		o := core.Step(clock(steps), e)
		steps++
		for _, p := range o.Plans {
			fmt.Fprintf(&out, "%d plan %+v\n", steps, p)
		}
		for _, f := range o.Findings {
			fmt.Fprintf(&out, "%d finding %v %v %s\n", steps, f.Bucket, f.Diagnosis, f.Text)
		}
		for _, l := range o.Learned {
			fmt.Fprintf(&out, "%d learned %v %v %.0f\n", steps, l.Key.Bucket, l.Action, l.CostNs)
		}
		if len(o.Plans) > 0 {
			version++
			step(tuner.Published{Comm: comm, Version: version})
		}
	}
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	rng := rand.New(rand.NewPCG(1, 2))
	step(tuner.CommJoined{Comm: comm, Shape: state.Shape{Ranks: 2, Nodes: 1}, Explore: true})
	step(tuner.Marks{Comm: comm, Bucket: bucket, Set: classicMarks(actions.AllReduce)})
	for seq := range uint64(600) {
		ns := 20_000 * (1 + 0.05*rng.NormFloat64())
		if seq > 300 {
			ns *= 2 // the fabric changes: alarms and findings carry times
		}
		for r := range int32(2) {
			step(&tuner.Sample{Comm: comm, Seq: seq, Rank: r, Bucket: bucket, Bytes: 1 << 16, Plan: uint32(version), SignalNs: state.Ns(ns), CounterNs: state.Ns(ns / 2)})
		}
		step(tuner.Tick{})
	}
	core.Buckets()
	step(tuner.CommLeft{Comm: comm})
	return out.String()
}

// A clock that steps backwards, stands still or jumps changes no decision.
func TestClockDecidesNothing(t *testing.T) {
	want := trace(t, func(step int) state.Ns { return state.Ns(step)*1_000_000 + 1 })
	if !strings.Contains(want, "plan") || !strings.Contains(want, "finding") || !strings.Contains(want, "learned") {
		t.Fatalf("the run decides too little to compare:\n%s", want)
	}
	for name, clock := range map[string]func(int) state.Ns{
		"backwards":      func(step int) state.Ns { return 1<<50 - state.Ns(step)*1_000_000 },
		"still":          func(int) state.Ns { return 7 },
		"an hour back":   func(step int) state.Ns { return state.Ns(step)*1_000_000 + 7200e9 - state.Ns(step/700)*3600e9 },
		"below zero":     func(step int) state.Ns { return -state.Ns(step) * 1_000_000 },
		"years at once":  func(step int) state.Ns { return state.Ns(step/500) * 1e17 },
		"back and forth": func(step int) state.Ns { return state.Ns(step%2) * 1e15 },
	} {
		if got := trace(t, clock); got != want {
			t.Errorf("%s: other decisions than under a good clock:\n%s\nwant\n%s", name, got, want)
		}
	}
}

// Communicators come and go for days: what the core keeps of those that have left does not grow.
func TestCommunicatorsThatLeftAreForgotten(t *testing.T) {
	newLearner, err := agents.New(agents.NameUCB)
	if err != nil {
		t.Fatal(err)
	}
	core, err := tuner.New(tuner.Config{NewLearner: newLearner, Explore: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 12}
	churn := func(from, to int) {
		for i := from; i < to; i++ {
			id := tuner.CommID(i + 1)
			core.Step(1, tuner.CommJoined{Comm: id, Shape: state.Shape{Ranks: 1, Nodes: 1}, Explore: true})
			if i%16 == 0 {
				core.Step(1, tuner.Marks{Comm: id, Bucket: bucket, Set: classicMarks(actions.AllReduce)})
				core.Step(1, &tuner.Sample{Comm: id, Bucket: bucket, Bytes: 4096, SignalNs: 1000, CounterNs: 900})
			}
			core.Step(1, tuner.Tick{})
			core.Step(1, tuner.CommLeft{Comm: id})
		}
	}
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	churn(0, 200)
	before := heap()
	churn(200, 10_000)
	after := heap()
	if n := len(core.Buckets()); n != 0 {
		t.Errorf("%d buckets of communicators that have left", n)
	}
	// One forgotten communicator is tens of kilobytes.
	if after > before+512<<10 {
		t.Errorf("the heap grew from %d to %d bytes over 9,800 communicators", before, after)
	}
	runtime.KeepAlive(core)
}
