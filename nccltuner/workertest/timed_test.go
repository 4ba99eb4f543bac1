package workertest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/nccltuner"
)

// timed collects the samples with times of a choice until all of the last calls have come, by rank, in the order of calls.
// A call that took its host long is not timed: on a busy machine some are missing.
func (f *forcer) timed(ranks, n int, choice actions.Action) [][]nccltuner.Sample {
	f.t.Helper()
	all := make([][]nccltuner.Sample, ranks)
	for deadline, quiet := time.Now().Add(time.Minute), 0; ; time.Sleep(time.Millisecond) {
		quiet++
		for _, s := range f.drain() {
			if s.Action == choice && !s.Untimed {
				all[s.Rank] = append(all[s.Rank], s)
				quiet = 0
			}
		}
		few := func(s []nccltuner.Sample) bool { return len(s) < n }
		if quiet > 50 && !slices.ContainsFunc(all, few) {
			return all
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%d samples of rank 0 and %d of the last, want %d of each", len(all[0]), len(all[ranks-1]), n)
		}
	}
}

// Calls that CUDA events time: each sample is of its own call, says what was asked for and what ran, and takes what the
// table says, tree or ring, on all ranks the same calls.
func TestTimedByEvents(t *testing.T) {
	const calls = 3 * nccltuner.EpochCalls
	for _, ranks := range []int{2, 4} {
		for _, version := range []string{"2.28.9", "2.30.7", "2.32.3"} {
			t.Run(fmt.Sprintf("%d ranks of %s", ranks, version), func(t *testing.T) {
				env, dir := pluginEnv(t)
				g := startGroup(t, ranks, sameEnv(append(env, "FAKEGPU_TABLE="+writeTable(t, ranks, 1), "FAKEGPU_OPTIONS=--nccl "+version,
					"LD_PRELOAD="+build+"/libdynamiccl.so:"+build+"/libnccl.so.2")...))
				g.init()
				f := newForcer(t, dir, ranks)
				var v nccltuner.RecordView
				if err := f.record.View(&v); err != nil {
					t.Fatal(err)
				}
				for _, r := range v.Ranks {
					if !r.EventTimed || r.NoTimes {
						t.Fatalf("rank %+v", r)
					}
				}
				for a := range tableAlgorithms {
					for _, bytes := range []int{1024, 4 << 20} {
						choice := actions.Action{Path: actions.PathCollective, Algorithm: actions.Algorithm(a), Protocol: actions.LL128, Channels: 8}
						f.force(g, actions.AllReduce, bytes, choice)
						f.watch(maskColl | maskKernelCh)
						g.ask(callLine("AllReduce", bytes, nccltuner.EpochCalls)) // the window opens with an epoch
						g.ask(callLine("AllReduce", bytes, calls))
						f.hold(f.timed(ranks, calls/3, choice), choice, choiceUs(bytes, a, int(actions.LL128), 8))
					}
				}
				g.bye()
			})
		}
	}
}

// hold wants samples of one choice, on one clock on which the calls follow each other without a gap, as they do here.
func (f *forcer) hold(all [][]nccltuner.Sample, choice actions.Action, us float64) {
	f.t.Helper()
	for rank, samples := range all {
		last := samples[len(samples)-1]
		for i, s := range samples {
			off := int64(s.SignalNs) - int64(us*1e3+0.5)
			if !s.EventTimed || s.Action != choice || s.Ran.Algorithm != choice.Algorithm || s.Ran.Protocol != choice.Protocol || s.Ran.Channels == 0 ||
				s.CounterNs != s.SignalNs || off < -1 || off > 1 {
				f.t.Fatalf("rank %d: %+v, want %v and %.3f us", rank, s, choice, us)
			}
			if i > 0 && s.Seq <= samples[i-1].Seq {
				f.t.Fatalf("rank %d: call %d after %d", rank, s.Seq, samples[i-1].Seq)
			}
			if late := s.ClockNs - last.ClockNs; late < -20 || late > 20 {
				f.t.Fatalf("rank %d: the clocks part by %d ns", rank, late)
			}
			// The first may be the last of the window before; in between others were made.
			passed := float64(last.StartNs-s.StartNs) - float64(last.Seq-s.Seq)*us*1e3
			if i > 0 && (passed < -100 || passed > 100) {
				f.t.Fatalf("rank %d: from call %d to %d passed %.0f ns more than they take", rank, s.Seq, last.Seq, passed)
			}
		}
	}
}

// Graphs and groups have no times, and take none: what they run is as fast as without us.
func TestTimedAroundGraphs(t *testing.T) {
	const bytes, calls = 65536, 10
	env, dir := pluginEnv(t)
	g := startGroup(t, 2, sameEnv(append(env, "FAKEGPU_TABLE="+writeTable(t, 2, 1), "LD_PRELOAD="+build+"/libdynamiccl.so")...))
	g.init()
	f := newForcer(t, dir, 2)
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 8}
	f.force(g, actions.AllReduce, bytes, ring)
	f.watch(maskColl | maskKernelCh)
	g.ask(callLine("AllReduce", bytes, 2*nccltuner.EpochCalls))
	f.timed(2, nccltuner.EpochCalls/3, ring)
	for _, r := range g.ask(measureLine("AllReduce", bytes, "graph", calls, 5, 5, 0, 0)) {
		near(t, "captured while calls are timed", r.Us, choiceUs(bytes, 1, 0, 8))
	}
	captured := 0
	for deadline := time.Now().Add(time.Minute); captured < 2*calls && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for _, s := range f.drain() {
			if s.Captured {
				captured++
			}
		}
	}
	if captured != 2*calls {
		t.Errorf("%d captured calls are told, want %d", captured, 2*calls)
	}
	for _, r := range g.ask(measureLine("AllToAll", bytes, "stream", calls, 5, 5, 0, 0)) { // no tuner is asked
		if *r.Wrong != 0 {
			t.Error("wrong elements")
		}
	}
	f.watch(0)
	g.ask(callLine("AllReduce", bytes, 2*nccltuner.EpochCalls))
	for quiet := 0; quiet < 20; quiet++ { // what was wanted before may come late
		if len(f.drain()) > 0 {
			quiet = 0
		}
		time.Sleep(time.Millisecond)
	}
	g.ask(callLine("AllReduce", bytes, nccltuner.EpochCalls))
	time.Sleep(20 * time.Millisecond)
	for _, s := range f.drain() {
		if !s.Untimed {
			t.Errorf("a sample that nobody wants: %+v", s)
		}
	}
	g.bye()
}
