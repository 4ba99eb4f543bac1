package tunersim

import (
	"math"
	"math/rand/v2"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// plan is an entry in force: trials, then the base for ever.
type plan struct {
	base   actions.Action
	trials []actions.Action
	ran    int
}

func (p *plan) next() (a actions.Action, trial bool) {
	p.ran++
	if p.ran <= len(p.trials) {
		return p.trials[p.ran-1], true
	}
	return p.base, false
}

// batch is an epoch's results on their way.
type batch struct {
	due  int // epoch
	seen []sighting
}

// sighting is an observation and the phase that it belongs to.
type sighting struct {
	phase int
	state.Observation
}

// driver plays the parts of the ranks, the rings and the daemon for one bucket.
type driver struct {
	Run
	rng      *rand.Rand
	guard    *agents.Guard
	env      *Environment
	inForce  plan
	next     *plan // published, takes force at the next epoch
	batches  []batch
	results  []PhaseResult
	awaited  int   // observations until the batch in force is known
	patience int   // epochs until a batch with lost samples is given up
	silent   []int // by phase: samples of it that the detector must see before it speaks; -1: it never does
	lastDue  int
}

func (d *driver) run() {
	var seen []sighting
	d.silent = make([]int, len(d.Phases))
	for epoch := 0; d.env.Table() != nil; epoch++ {
		if d.next != nil {
			d.inForce, d.next = *d.next, nil
		}
		for range d.Timing.EpochCalls {
			if d.env.Table() == nil {
				break
			}
			phase, call := d.env.Phase()
			if call == 0 {
				d.enter(phase)
			}
			base := d.inForce.base
			a, trial := d.inForce.next()
			c := d.env.Call(a)
			d.results[phase].add(d.Phases[phase].Table, d.Bucket, base, c.TableNs, trial && a != actions.Default && a != base)
			if !c.Lost {
				seen = append(seen, sighting{phase, c.Seen})
			}
		}
		d.deliver(epoch, &seen)
	}
}

// enter decides when the detector will speak about a new phase.
func (d *driver) enter(phase int) {
	d.silent[phase] = -1
	if phase == 0 {
		return
	}
	before, _ := d.Phases[phase-1].Table.Cost(d.Bucket, d.inForce.base)
	after, _ := d.Phases[phase].Table.Cost(d.Bucket, d.inForce.base)
	if math.Abs(math.Log(after/before)) >= d.Timing.DetectBound {
		d.silent[phase] = d.Timing.MinDetect + d.rng.IntN(d.Timing.MaxDetect-d.Timing.MinDetect+1)
	}
}

// deliver hands over results whose lag is over and lets the learner plan when its last batch is known.
func (d *driver) deliver(epoch int, seen *[]sighting) {
	due := epoch + d.Timing.MinLag - 1 + d.rng.IntN(d.Timing.MaxLag-d.Timing.MinLag+1)
	d.lastDue = max(d.lastDue, due) // rings keep their order
	d.batches = append(d.batches, batch{d.lastDue, append([]sighting(nil), *seen...)})
	*seen = (*seen)[:0]
	shifted := false
	for len(d.batches) > 0 && d.batches[0].due <= epoch {
		for _, o := range d.batches[0].seen {
			d.guard.Observe(o.Observation)
			d.awaited--
			if d.silent[o.phase]--; d.silent[o.phase] == 0 {
				d.guard.Shift(agents.DiagnosisUnknown)
				shifted = true
			}
		}
		d.batches = d.batches[1:]
	}
	d.patience--
	if shifted || d.guard.Urgent() || d.next == nil && (d.awaited <= 0 || d.patience <= 0) {
		d.propose()
	}
}

// settledCalls is how many calls a learner without trials is left alone.
const settledCalls = 16

// propose publishes the learner's next plan.
func (d *driver) propose() {
	base, trials := d.guard.Propose(d.Timing.MaxTrials)
	d.awaited = len(trials)
	if len(trials) == 0 {
		d.awaited = settledCalls
	}
	d.patience = (d.awaited+d.Timing.EpochCalls-1)/d.Timing.EpochCalls + d.Timing.MaxLag + 1
	if len(trials) == 0 && base == d.inForce.base && d.inForce.ran >= len(d.inForce.trials) && d.next == nil {
		return // nothing new: no plan change
	}
	d.next = &plan{base: base, trials: append([]actions.Action(nil), trials...)}
}
