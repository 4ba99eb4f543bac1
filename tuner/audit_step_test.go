package tuner_test

import (
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// guarded is a program whose calls are charged what they take, its steps guarded or not.
func guarded(t *testing.T, learner string, s step, seed uint64, on bool) *play {
	t.Helper()
	p := playOf(t, learner, tuner.Config{Explore: true, Seed: seed, StepGuard: on}, s)
	p.single = true
	return p
}

// queueStep is four calls that wait for each other for a part of the step.
func queueStep() step {
	s := step{join: beside}
	for i := range 4 {
		s.calls = append(s.calls, stepCall{16 << 20, 0.56e6 + 0.16e6*float64(i)})
	}
	return s
}

var guardLearners = []string{"lstm", agents.NameUCB, "coordinate-descent"}

// What is chosen by what calls take makes these steps 3 to 7% longer; the guard goes back to NCCL's default, and stays there.
func TestStepGuardGoesBack(t *testing.T) {
	hidden, queue := besideStep(), queueStep()
	hidden.channels, queue.channels = 16, 16
	late, mixed := hidden, hidden
	late.join = backlog
	mixed.calls = append(slices.Clone(hidden.calls[:3]), stepCall{8 << 20, 2e6})
	for _, c := range []struct {
		name   string
		step   step
		behind int
		odd    int
	}{{"beside", hidden, 0, 0}, {"far ahead", hidden, 300, 0}, {"backlog", late, 0, 0}, {"queue", queue, 0, 0}, {"odd calls", mixed, 0, 90}} {
		plain := truth(t, c.step)
		if c.odd > 0 {
			plain += 120e3 / float64(c.odd) // what an odd call and the compute behind it take
		}
		for _, learner := range guardLearners {
			for seed := uint64(1); seed <= 3; seed++ {
				got := map[bool]float64{}
				var p *play
				plans := uint64(0)
				for _, on := range []bool{false, true} {
					p = guarded(t, learner, c.step, seed, on)
					p.behind, p.odd = c.behind, c.odd
					p.run(4000)
					plans = p.core.Totals().Plans
					got[on] = p.run(1000) / plain
				}
				all, v := p.core.Totals(), p.core.Buckets()[0]
				if all.Plans > plans+2 || v.Exploring { // how often calls are sampled may change
					t.Errorf("%s, %s, seed %d: %d plans since the veto", c.name, learner, seed, all.Plans-plans)
				}
				t.Logf("%s, %s %d: %.4f of the default's step, guarded %.4f; %d audits; %s", c.name, learner, seed, got[false], got[true], all.Audits, v.Audit)
				if got[false] < 1.03 || got[true] > 1.003 || v.Choice != actions.Default || all.Audits != 1 || all.Vetoes != 1 || v.Note != v.Audit.String() {
					t.Errorf("%s, %s, seed %d: %.4f of the default's step, guarded %.4f; %v, %d audits, %d vetoes", c.name, learner, seed, got[false], got[true], v.Choice, all.Audits, all.Vetoes)
				}
			}
		}
	}
}

// From the first block of NCCL's default on plans have what was chosen, and nothing to try, for all calls, or for those alone that go into
// graphs, until the audit ends.
func TestAuditTriesNothing(t *testing.T) {
	s := besideStep()
	s.channels = 16
	p := guarded(t, agents.NameUCB, s, 1, true)
	var entries []tuner.Entry
	empty, full := 0, 0
	p.onPlan = func(plan tuner.Plan) {
		switch {
		case len(entries) == 0 && len(plan.Entries) == 0 && p.core.Totals().Audits == 0:
			return // nothing is chosen yet
		case plan.DefaultGraphs && p.core.Totals().Audits == 0:
			t.Errorf("graphs get NCCL's default: %+v", plan)
		case plan.DefaultCalls && plan.DefaultGraphs:
			return // a veto
		case plan.DefaultCalls:
			empty++
			if in := plan.Entries; len(in) != 1 || in[0].ID != entries[0].ID || in[0].Base != entries[0].Base || len(in[0].Trials) > 0 {
				t.Errorf("a block of NCCL's default has %+v for graphs; chosen %+v", in, entries)
			}
		case empty == 0:
			entries = slices.Clone(plan.Entries)
		default:
			full++
			if len(plan.Entries) != 1 || plan.Entries[0].ID != entries[0].ID || plan.Entries[0].Base != entries[0].Base || len(plan.Entries[0].Trials) > 0 || plan.SampleEvery < 2 {
				t.Errorf("a block with %+v, every %d; chosen %+v", plan.Entries, plan.SampleEvery, entries)
			}
		}
	}
	p.run(4000)
	if empty < 5 || full < 5 || len(entries) != 1 || entries[0].Base == actions.Default {
		t.Errorf("%d plans with nothing and %d with %+v", empty, full, entries)
	}
}

// Where compute waits for calls what was chosen stays, whatever the noise and however often the host stands still.
func TestStepGuardKeepsWhatHelps(t *testing.T) {
	s := besideStep()
	s.join, s.channels = serial, 4
	audits, runs := uint64(0), uint64(52)
	if testing.Short() {
		runs = 5
	}
	for _, jitter := range []float64{0.002, 0.01, 0.05, 0.1} {
		for seed := range runs {
			p := guarded(t, agents.NameUCB, s, seed, true)
			p.paused, p.jitter = true, jitter
			p.run(2500)
			all := p.core.Totals()
			audits += all.Audits
			if all.Vetoes > 0 {
				t.Errorf("noise %g, seed %d: %s", jitter, seed, p.core.Buckets()[0].Audit)
			}
		}
	}
	t.Logf("%d audits", audits)
	if audits < 4*runs*9/10 {
		t.Errorf("%d audits in %d runs", audits, 4*runs)
	}
}

// In an audit calls are timed, and what that adds to calls differs by what runs: it is no part of the steps. What is chosen gains 1.2 us
// a call here, and is charged 1.5 us more for being timed.
func TestStepGuardLeavesOutWhatTimingAdds(t *testing.T) {
	s := step{join: serial, channels: 12}
	for range 4 {
		s.calls = append(s.calls, stepCall{16 << 10, 20e3})
	}
	many := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: 32}
	for seed := range uint64(5) {
		bucket, _ := state.BucketOf(actions.AllReduce, s.calls[0].bytes)
		p := playOf(t, agents.NameUCB, tuner.Config{Seed: seed, StepGuard: true}, s, tuner.Learned{Key: tuner.Key{Bucket: bucket}, Action: many, CostNs: 8000, Default: 9100, Calls: 1000})
		p.lasting, p.dearer, p.single = true, 0.25, true
		p.run(30_000)
		v := p.core.Buckets()[0]
		t.Log(v.Choice, v.Audit)
		if all := p.core.Totals(); all.Audits == 0 || all.Vetoes > 0 || v.Choice == actions.Default {
			t.Errorf("seed %d: %v, %d audits, %d vetoes: %s", seed, v.Choice, all.Audits, all.Vetoes, v.Audit)
		}
	}
}

// Where timing is dear, blocks have few calls timed.
func TestAuditsTimeFewCalls(t *testing.T) {
	for calls, most := range map[int]float64{6: 0.3, 57: 0.15, 130: 0.15} {
		s := step{join: serial, channels: 12}
		for range calls - 1 {
			s.calls = append(s.calls, stepCall{16 << 10, 20e3})
		}
		s.calls = append(s.calls, stepCall{32 << 10, 20e3})
		many := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: 32}
		bucket, _ := state.BucketOf(actions.AllReduce, s.calls[0].bytes)
		p := playOf(t, agents.NameUCB, tuner.Config{Seed: 1, StepGuard: true}, s, tuner.Learned{Key: tuner.Key{Bucket: bucket}, Action: many, CostNs: 8000, Default: 9100, Calls: 1000})
		p.dearer, p.single = 0.25, true
		began, timed := uint64(0), 0
		p.onPlan = func(plan tuner.Plan) {
			if plan.DefaultCalls && began == 0 {
				began, timed = p.seq, p.timed
			}
		}
		for range 200_000 / calls {
			if p.run(1); p.core.Totals().Audits > 0 {
				break
			}
		}
		share := float64(p.timed-timed) / float64(p.seq-began)
		t.Logf("steps of %d calls: %d, %.3f of them timed; %+v", calls, p.seq-began, share, *p.core.Buckets()[0].Audit)
		if p.core.Totals().Audits != 1 || began == 0 || share > most {
			t.Errorf("steps of %d calls: %d audits, and of %d calls from the first block of NCCL's default on %.3f were timed", calls, p.core.Totals().Audits, p.seq-began, share)
		}
	}
}

// Audits cost less than a hundredth of what is gained over 50,000 calls.
func TestStepGuardCostsLittle(t *testing.T) {
	s := besideStep()
	s.join, s.channels = serial, 4
	plain := truth(t, s)
	for _, jitter := range []float64{0.002, 0.01, 0.05, 0.1} {
		got := map[bool]float64{}
		var p *play
		for _, on := range []bool{false, true} {
			p = guarded(t, "coordinate-descent", s, 1, on)
			p.jitter = jitter
			got[on] = p.run(12_500)
		}
		lost := (got[true] - got[false]) / (plain - got[false])
		t.Logf("noise %g: %.4f of the gain lost, %d audits", jitter, lost, p.core.Totals().Audits)
		if lost > 0.01 || p.core.Totals().Audits == 0 {
			t.Errorf("noise %g: audits lost %.4f of the gain; %+v", jitter, lost, p.core.Totals())
		}
	}
}

// A program that does nothing but calls has no compute to lose, and is not audited; as soon as that is seen calls are not all timed any more.
func TestStepGuardLeavesOthersAlone(t *testing.T) {
	alone := step{join: serial, channels: 4}
	for range 4 {
		alone.calls = append(alone.calls, stepCall{16 << 20, 3000})
	}
	p := guarded(t, agents.NameUCB, alone, 1, true)
	dense, longest := 0, 0
	p.onPlan = func(plan tuner.Plan) {
		if plan.SampleEvery == 1 && p.core.Buckets()[0].Choice != actions.Default {
			dense = int(p.seq)
		} else if dense > 0 {
			longest, dense = max(longest, int(p.seq)-dense), 0
		}
	}
	p.run(3000)
	if longest == 0 || longest > 300 {
		t.Errorf("%d calls timed one behind the other", longest)
	}
	if v := p.core.Buckets()[0]; v.Choice == actions.Default || v.Audit != nil || p.core.Totals().Audits != 0 {
		t.Errorf("%+v", v)
	}
}

// longStep is two calls beside long compute, which what is chosen makes longer.
func longStep() step {
	s := besideStep()
	s.channels = 4
	s.calls = s.calls[:2]
	for i := range s.calls {
		s.calls[i].computeNs = 6e6
	}
	return s
}

// Later nothing is hidden any more: another audit finds that what was chosen makes steps shorter, and it is in force again.
func TestStepGuardComesBack(t *testing.T) {
	s := longStep()
	p := guarded(t, "coordinate-descent", s, 1, true)
	p.run(4000)
	if v := p.core.Buckets()[0]; v.Choice != actions.Default || p.core.Totals().Vetoes != 1 {
		t.Fatalf("no veto: %+v", v)
	}
	blocks := 0
	p.onPlan = func(plan tuner.Plan) {
		if len(plan.Called()) > 0 && p.core.Totals().Audits == 1 { // a block of what is vetoed
			blocks++
			if !plan.DefaultGraphs {
				t.Errorf("graphs get what is vetoed: %+v", plan)
			}
		}
	}
	p.step.join, p.dearer = serial, 2
	p.run(40_000)
	if blocks == 0 {
		t.Error("no block of what is vetoed")
	}
	if v := p.core.Buckets()[0]; v.Choice == actions.Default || p.core.Totals().Vetoes != 1 {
		t.Errorf("still vetoed: %+v, %s, %+v", v, v.Audit, p.core.Totals())
	}
}

// What a verdict says of graphs is in a plan at once, also where the last block had for calls what the verdict has, and nothing else calls for
// another plan.
func TestStepGuardsVerdictHoldsForGraphs(t *testing.T) {
	s := longStep()
	for seed := uint64(1); seed <= 6; seed++ {
		p := playOf(t, "coordinate-descent", tuner.Config{Explore: true, Seed: seed, StepGuard: true}, s)
		var last tuner.Plan
		p.single, p.onPlan = true, func(plan tuner.Plan) { last = plan }
		p.run(4000)
		if p.core.Totals().Vetoes != 1 || !last.DefaultCalls || !last.DefaultGraphs {
			t.Errorf("seed %d: %d vetoes, and the plan is %+v", seed, p.core.Totals().Vetoes, last)
		}
		p.step.join, p.dearer = serial, 2
		for runs := 0; runs < 10 && p.core.Buckets()[0].Choice == actions.Default; runs++ {
			p.run(4000)
		}
		if p.core.Buckets()[0].Choice == actions.Default || last.DefaultCalls || last.DefaultGraphs {
			t.Errorf("seed %d: chosen is %v, and the plan is %+v", seed, p.core.Buckets()[0].Choice, last)
		}
	}
}
