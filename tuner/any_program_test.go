package tuner_test

import (
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/tuner"
)

// anyStep is a step of up to so many calls, of few sizes and with any compute between them.
func anyStep(rng *rand.Rand, ours bool) step {
	s := step{join: joinMode(rng.IntN(3)), ours: ours}
	sizes := []uint64{16 << 10, 4 << 20, 16 << 20}
	computeNs := []float64{1e3, 2e4, 1e6}[rng.IntN(3)]
	for range 1 + rng.IntN([]int{4, 40, 300}[rng.IntN(3)]) {
		s.calls = append(s.calls, stepCall{sizes[rng.IntN(1+rng.IntN(len(sizes)))], computeNs * (0.5 + rng.Float64())})
	}
	return s
}

// A program may turn to other calls at any moment, also in the middle of an audit, and hear of anything meanwhile. Nothing of that ends the
// daemon, which serves others as well, and what is in its plans can be run.
func TestAnyProgramIsBorne(t *testing.T) {
	calls, all := 120_000, tuner.Totals{}
	for seed := uint64(1); seed <= 10; seed++ {
		rng := rand.New(rand.NewPCG(seed, 11))
		ours := rng.IntN(2) == 0
		first := anyStep(rng, ours)
		first.calls = append(first.calls, stepCall{16 << 10, 1e3}, stepCall{4 << 20, 1e3}, stepCall{16 << 20, 1e3}) // so their marks are told
		p := playOf(t, guardLearners[seed%uint64(len(guardLearners))], tuner.Config{Explore: true, Seed: seed, StepGuard: true}, first)
		marks := classicMarks(actions.AllReduce)
		if ours {
			marks = tuner.MarkBulk
		}
		p.single, p.paused, p.behind = rng.IntN(2) == 0, rng.IntN(4) == 0, 8*rng.IntN(2)
		p.onPlan = func(plan tuner.Plan) {
			for _, e := range plan.Entries {
				if len(e.Trials) > tuner.MaxTrials || ours && e.Base.Channels > 64 {
					t.Errorf("seed %d: %+v", seed, e)
				}
			}
		}
		for p.seq < uint64(calls) {
			if rng.IntN(3) > 0 {
				p.step = anyStep(rng, ours)
			}
			until := p.seq + []uint64{100, 3000, 20_000}[rng.IntN(3)]
			for phase := p.core.AuditPhase(comm); p.seq < until; {
				p.run(1)
				if now := p.core.AuditPhase(comm); now != phase {
					if phase = now; rng.IntN(2) == 0 {
						break // the program turns to something else where that is the likeliest to hurt
					}
				}
			}
			switch rng.IntN(16) {
			case 0:
				p.tell(tuner.Outstanding{Comm: comm, Kernels: 1 + rng.IntN(4), Multiprocessors: 132})
			case 1:
				p.tell(tuner.Advised{Comm: comm, Prior: []tuner.Learned{bulkKnown(4 << 20)}})
			case 2, 3:
				p.dearer = 1 + 2*float64(rng.IntN(2))
			case 4:
				p.tell(tuner.Marks{Comm: comm, Bucket: p.bucket(p.step.calls[0]), Set: marks, Differ: rng.IntN(4) == 0})
			}
		}
		got := p.core.Totals()
		all.Audits, all.Vetoes, all.Plans, all.Alarms = all.Audits+got.Audits, all.Vetoes+got.Vetoes, all.Plans+got.Plans, all.Alarms+got.Alarms
	}
	t.Logf("%d plans, %d audits, %d vetoes, %d alarms", all.Plans, all.Audits, all.Vetoes, all.Alarms)
	if all.Audits == 0 || all.Alarms == 0 {
		t.Error("no audit was under way, or nothing was told")
	}
}
