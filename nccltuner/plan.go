package nccltuner

import (
	"fmt"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// PlanSpec is what a plan should say. A bucket that is not listed passes through.
type PlanSpec struct {
	SampleEvery uint32 // epochs; power of two; 0: no sampling
	CloseEpochs uint32 // from its coming into force on: so long puts over GIN are timed closely
	Defaults    uint32 // PlanDefaultCalls, PlanDefaultGraphs: these calls pass through, whatever Entries say
	Entries     []EntrySpec
}

// EntrySpec is what one bucket does: its next Skip calls run the base, the len(Trials) behind them the trials, all later ones the base.
type EntrySpec struct {
	Bucket state.Bucket
	ID     uint32   // changes whenever trials start anew
	Base   uint32   // action word
	Skip   uint32   // at most MaxSkip
	Trials []uint32 // action words, at most NumTrials
}

// encodePlan writes the whole plan but for version and checksum. It refuses what ranks would refuse, and what they would
// silently not run.
func encodePlan(p *ABIPlan, spec *PlanSpec) error {
	if spec.SampleEvery&(spec.SampleEvery-1) != 0 {
		return fmt.Errorf("sampling every %d epochs, want a power of two: %w", spec.SampleEvery, ErrBadPlan)
	}
	*p = ABIPlan{SampleEvery: spec.SampleEvery, CloseEpochs: spec.CloseEpochs, Defaults: spec.Defaults, NumEntries: 1} // entry 0 is never used
	for i := range spec.Entries {
		e := &spec.Entries[i]
		b := e.Bucket
		if int(b.Collective) >= NumCollectives || int(b.Log2Bytes) >= NumBuckets {
			return fmt.Errorf("entry of collective %d and bucket %d: %w", b.Collective, b.Log2Bytes, ErrBadPlan)
		}
		if p.Index[b.Collective][b.Log2Bytes] != 0 {
			return fmt.Errorf("two entries of %s: %w", b, ErrBadPlan)
		}
		if len(e.Trials) > NumTrials {
			return fmt.Errorf("%d trials of %s, at most %d fit: %w", len(e.Trials), b, NumTrials, ErrBadPlan)
		}
		if e.Skip > MaxSkip {
			return fmt.Errorf("trials of %s behind %d calls, at most %d may come before them: %w", b, e.Skip, MaxSkip, ErrBadPlan)
		}
		if shared := p.settledOn(e); shared != 0 {
			p.Index[b.Collective][b.Log2Bytes] = shared
			continue
		}
		if p.NumEntries == NumEntries {
			return fmt.Errorf("%d buckets want more entries than the %d that fit: %w", len(spec.Entries), NumEntries-1, ErrBadPlan)
		}
		p.Index[b.Collective][b.Log2Bytes] = uint8(p.NumEntries)
		abi := &p.Entries[p.NumEntries]
		p.NumEntries++
		abi.ID, abi.Base, abi.NumTrials, abi.Skip = e.ID, e.Base, uint32(len(e.Trials)), e.Skip
		copy(abi.Trials[:], e.Trials)
		if err := checkWord(e.Base, b); err != nil {
			return err
		}
		for _, w := range e.Trials {
			if err := checkWord(w, b); err != nil {
				return err
			}
		}
	}
	return nil
}

// settledOn gives the place of an entry that does what e does and tries nothing either; 0: there is none. It gets the newest id of those
// that share it, for a restarted daemon goes on behind the ids that it finds.
func (p *ABIPlan) settledOn(e *EntrySpec) uint8 {
	if len(e.Trials) > 0 {
		return 0
	}
	for i := uint32(1); i < p.NumEntries; i++ {
		if at := &p.Entries[i]; at.NumTrials == 0 && at.Base == e.Base {
			at.ID = max(at.ID, e.ID)
			return uint8(i)
		}
	}
	return 0
}

func checkWord(w uint32, b state.Bucket) error {
	if _, err := actions.FromWord(w); err != nil {
		return fmt.Errorf("entry of %s: %w: %w", b, err, ErrBadPlan)
	}
	return nil
}

// planChecksum is dyn_plan_checksum of nccltuner/plugin/plan.h. The version comes in last: content of one plan under the
// version of another does not pass.
func planChecksum(p *ABIPlan) uint64 {
	var sum, sums [8]uint64
	for i, w := range p.words()[planCheckedFrom:] {
		sum[i%8] += w
		sums[i%8] += sum[i%8]
	}
	h := uint64(0)
	for k := range sum {
		h = (h ^ sum[k]) * 0x9E3779B97F4A7C15
		h = (h ^ sums[k]) * 0x9E3779B97F4A7C15
		h ^= h >> 32
	}
	return h ^ p.Version
}
