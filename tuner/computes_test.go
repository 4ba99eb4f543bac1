package tuner_test

import (
	"cmp"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

func bulk(ctas uint8) actions.Action {
	return actions.Action{Path: actions.PathLSA, Kernel: actions.Bulk, Channels: ctas}
}

// bulkUs is what AllReduce took on 4 H200: docs/figures, gpu-sweep-kernels-2026-11-22.
var bulkUs = map[uint64]map[actions.Action]float64{
	4 << 20:  {actions.Default: 39.84, bulk(32): 29.5, bulk(64): 27.4},
	16 << 20: {actions.Default: 97.72, bulk(32): 106.3, bulk(64): 88.5},
}

func bulkCost(a actions.Action, bytes uint64) (callNs, stolenNs float64) {
	us, known := bulkUs[bytes][a]
	if bytes < 1<<20 {
		us, known = 5, true
	}
	if !known {
		panic(a.String())
	}
	callNs = 1e3 * us
	return callNs, callNs * float64(cmp.Or(a.Channels, 24)) / 132
}

// backward is what a backward pass is to its calls: each of them runs beside compute, and the step waits for the last one.
func backward() step {
	return step{join: backlog, ours: true, calls: []stepCall{{16 << 20, 2e6}, {16 << 20, 1.8e6}, {16 << 20, 2.2e6}, {4 << 20, 1e6}}}
}

// bulkKnown is what calibrate stores.
func bulkKnown(bytes uint64) tuner.Learned {
	b, _ := state.BucketOf(actions.AllReduce, bytes)
	l := tuner.Learned{Key: tuner.Key{Bucket: b}, Action: bulk(64), CostNs: 1e3 * bulkUs[bytes][bulk(64)], Default: 1e3 * bulkUs[bytes][actions.Default], Calls: 1000,
		Evidence: map[actions.Action]tuner.Estimate{}}
	for a, us := range bulkUs[bytes] {
		l.Evidence[a] = tuner.Estimate{N: 8, MeanNs: 1e3 * us, VarLog: 1e-4}
	}
	return l
}

// A call that gains by taking multiprocessors from the compute beside it makes the step longer. Guarded, such a choice is not in force any
// more as soon as gaps between calls show compute, whatever was stored; one that takes no more than NCCL's default is.
func TestComputeBesideCallsIsSpared(t *testing.T) {
	s := backward()
	plain := truth(t, s)
	for _, learner := range guardLearners {
		for seed := uint64(1); seed <= 3; seed++ {
			for _, stored := range [][]tuner.Learned{nil, {bulkKnown(16 << 20), bulkKnown(4 << 20)}} {
				got := map[bool]float64{}
				for _, on := range []bool{false, true} {
					p := playOf(t, learner, tuner.Config{Explore: true, Seed: seed, StepGuard: on}, s, stored...)
					p.single, p.jitter = true, 0.002
					p.run(40)
					wide := 0
					p.onPlan = func(plan tuner.Plan) {
						for _, e := range plan.Entries {
							if on && slices.ContainsFunc(append([]actions.Action{e.Base}, e.Trials...), func(a actions.Action) bool { return a.Channels > 32 }) {
								wide++
							}
						}
					}
					got[on] = p.run(400) / plain
					if all := p.core.Totals(); on && (wide > 0 || all.Audits > 0) {
						t.Errorf("%s, seed %d: %d entries with more CTAs, %d audits", learner, seed, wide, all.Audits)
					}
					for _, v := range p.core.Buckets() {
						want := map[uint8]actions.Action{24: actions.Default, 22: bulk(32)}[v.Bucket.Log2Bytes]
						if on && (v.Choice != want || !v.Computes || v.MostCTAs != 32) || !on && v.Choice != bulk(64) {
							t.Errorf("%s, seed %d, guarded %t, stored %t: %v of %v, %+v", learner, seed, on, stored != nil, v.Choice, v.Bucket, v)
						}
					}
				}
				t.Logf("%s %d, stored %t: %.4f of the default's step, guarded %.4f", learner, seed, stored != nil, got[false], got[true])
				if got[false] < 1.005 || got[true] > 1.002 {
					t.Errorf("%s, seed %d: %.4f of the default's step, guarded %.4f", learner, seed, got[false], got[true])
				}
			}
		}
	}
}

// Where calls wait for nothing but calls nothing is spared.
func TestCallsAloneAreNotSpared(t *testing.T) {
	s := backward()
	s.join = serial
	for i := range s.calls {
		s.calls[i].computeNs = 3000
	}
	p := playOf(t, agents.NameUCB, tuner.Config{Explore: true, Seed: 1, StepGuard: true}, s)
	p.single = true
	p.run(600)
	for _, v := range p.core.Buckets() {
		if v.Choice != bulk(64) || v.Computes || v.MostCTAs != 0 {
			t.Errorf("%v of %v: %+v", v.Choice, v.Bucket, v)
		}
	}
}

// A program that begins with large calls and goes on with small ones, as nccl-tests do, has few of these timed.
func TestSmallCallsAreNotHeardForLargeOnes(t *testing.T) {
	s := step{join: serial, ours: true, calls: []stepCall{{4 << 20, 3000}}}
	p := playOf(t, agents.NameUCB, tuner.Config{Explore: true, Seed: 1, StepGuard: true}, s)
	p.single = true
	p.run(3 * epochCalls) // as long as that is, before the daemon hears of any
	p.step.calls[0].bytes = 16 << 10
	p.tell(tuner.Marks{Comm: comm, Bucket: p.bucket(p.step.calls[0]), Set: tuner.MarkOneShot})
	before := p.timed
	p.run(1000)
	if timed := p.timed - before; timed > 200 {
		t.Errorf("%d of 1,000 small calls are timed", timed)
	} else {
		t.Logf("%d of 1,000 small calls are timed", timed)
	}
}

// What has fewer CTAs than what was stored is in force where it was measured to be better than NCCL's default, and nothing is where nobody
// has measured it. The store keeps the faster choice, for programs that do not compute.
func TestSparedChoicesOfTheStore(t *testing.T) {
	known, unknown := bulkKnown(4<<20), bulkKnown(16<<20)
	delete(unknown.Evidence, bulk(32))
	for _, explore := range []bool{false, true} {
		p := playOf(t, agents.NameUCB, tuner.Config{Explore: explore, Seed: 1, StepGuard: true}, backward(), known, unknown)
		p.single = true
		early := map[uint8]actions.Action{}
		p.onPlan = func(plan tuner.Plan) {
			for _, v := range p.core.Buckets() {
				if early[v.Bucket.Log2Bytes] == actions.Default {
					early[v.Bucket.Log2Bytes] = v.Choice
				}
			}
		}
		p.run(60)
		if early[24] != bulk(64) || early[22] != bulk(64) {
			t.Errorf("explore %t: in force first is %v", explore, early)
		}
		for _, v := range p.core.Buckets() {
			want := map[uint8]actions.Action{24: actions.Default, 22: bulk(32)}[v.Bucket.Log2Bytes]
			if v.Choice != want {
				t.Errorf("explore %t: %v of %v, want %v", explore, v.Choice, v.Bucket, want)
			}
		}
		told := p.core.Step(state.Ns(p.clock), tuner.CommLeft{Comm: comm}).Learned
		for _, l := range told {
			if l.Action != bulk(64) || l.CostNs <= 0 || l.CostNs >= l.Default {
				t.Errorf("explore %t: the store is told %+v", explore, l)
			}
		}
		if explore && len(told) != 2 {
			t.Errorf("the store is told %+v", told)
		}
	}
}

// The store keeps the faster choice, too, where it is other kernels or the program's own bound that leave fewer CTAs.
func TestWiderChoicesStayInTheStore(t *testing.T) {
	s := step{join: serial, ours: true, calls: []stepCall{{16 << 20, 3000}}}
	for name, narrow := range map[string]tuner.Outstanding{"kernels": {Comm: comm, Kernels: 4}, "the program": {Comm: comm, Kernels: 1, MaxCTAs: 32}} {
		for _, explore := range []bool{false, true} {
			p := playOf(t, agents.NameUCB, tuner.Config{Explore: explore, Seed: 1, StepGuard: true}, s, bulkKnown(16<<20))
			p.single = true
			p.tell(narrow)
			p.run(200)
			for _, v := range p.core.Buckets() {
				if v.Choice != actions.Default {
					t.Errorf("%s, explore %t: %v of %v, where 32 CTAs are slower than NCCL's default", name, explore, v.Choice, v.Bucket)
				}
			}
			told := p.core.Step(state.Ns(p.clock), tuner.CommLeft{Comm: comm}).Learned
			if len(told) != 1 || told[0].Action != bulk(64) || told[0].CostNs <= 0 || told[0].CostNs >= told[0].Default {
				t.Errorf("%s, explore %t: the store is told %+v", name, explore, told)
			}
		}
	}
}
