package tuner

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// batches is a program that makes rounds of 61 calls of 1 KiB: 8 that its GPU waits for, in which any choice takes 6 us, 45 that are
// enqueued ahead, of which the first 9 cost NCCL's default ever more, from 2.4 us to its 4.2, and 8 as the first. Ours takes 2.65 us
// wherever calls are enqueued ahead. Plans come into force between rounds (figures: 2x H200, NCCL 2.32.3, AllGather of 1 KiB on
// registered memory).
type batches struct {
	core    *Core
	rng     *rand.Rand
	b       state.Bucket
	entry   Entry
	pending *Entry
	version uint64
	running uint32
	seq     uint64
	calls   int
	made    uint16
	counted map[actions.Action]int
}

const round = 61

func (p *batches) us(a actions.Action, at int) float64 {
	noise := math.Exp(0.08 * p.rng.NormFloat64())
	switch ahead := at - 8; {
	case ahead < 0 || ahead >= 45:
		return 6 * noise
	case a.Protocol == actions.LL && a != actions.Default:
		return 2.65 * noise
	case a == actions.Default:
		return min(4.2, 2.4+0.2*float64(ahead)) * noise
	}
	return 5 * noise
}

// round makes one, all of it sampled or trials alone; disturbed calls take half as long again.
func (p *batches) round(sampled bool, disturbed int) {
	if p.pending != nil {
		p.running = uint32(p.version)
		if p.pending.ID != p.entry.ID {
			p.entry, p.calls = *p.pending, 0
		}
		p.pending = nil
	}
	for at := range round {
		p.calls++
		p.made++
		p.seq++
		a := p.entry.Action(p.calls)
		p.counted[a]++
		trial := p.calls > max(1, p.entry.Skip) && p.calls <= p.entry.Skip+len(p.entry.Trials)
		if !trial && !sampled {
			continue
		}
		us := p.us(a, at)
		if at < disturbed {
			us *= 1.5
		}
		said := 0
		if p.entry.ID != 0 {
			said = min(p.calls, 255)
		}
		ns := state.Ns(1000*us) + eventsNs
		start := int64(p.seq) * 30_000
		issued := start - 200_000
		if at < 8 || at >= 53 {
			issued = start - 2_000
		}
		p.core.Step(state.Ns(p.seq)*30_000, &Sample{Comm: 1, Seq: p.seq, Bucket: p.b, Bytes: 1 << 10, Action: a, Ran: a, SignalNs: ns, CounterNs: ns, EventTimed: true, StartNs: uint64(start), ClockNs: 7, RecvNs: issued + 7,
			Made: p.made, Plan: p.running, EntryCall: uint8(said)})
	}
	now := state.Ns(p.seq) * 30_000
	for _, plan := range p.core.Step(now, Tick{}).Plans {
		p.version++
		p.core.Step(now, Published{Comm: 1, Version: p.version})
		e := entryOf([]Plan{plan}, p.b)
		p.pending = &Entry{ID: e.ID, Base: e.Base, Skip: e.Skip, Trials: slices.Clone(e.Trials)}
	}
}

// Trials stand where calls do, and short calls that a GPU waits for are not charged, so what is better is found and kept, also over
// alarms: of all calls 0.25 and 0.01 where trials stand at the beginning of rounds, 0.54 and 0.40 where all calls are charged.
func TestTrialsStandAnywhere(t *testing.T) {
	for _, name := range []string{agents.NameUCB, agents.NameCoordinateDescent} {
		newLearner, err := agents.New(name)
		if err != nil {
			t.Fatal(err)
		}
		kept, sessions := 0.0, 20
		for seed := range uint64(sessions) {
			core, err := New(Config{NewLearner: newLearner, Explore: true, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			p := &batches{core: core, rng: rand.New(rand.NewPCG(seed, 9)), b: state.Bucket{Collective: actions.AllGather, Log2Bytes: 10}, counted: map[actions.Action]int{}}
			core.Step(0, CommJoined{Comm: 1, Shape: state.Shape{Ranks: 1, Nodes: 2}, EventTimed: true, Explore: true})
			core.Step(0, Marks{Comm: 1, Bucket: p.b, Set: 0b101})
			const rounds = 1500
			for i := range rounds {
				disturbed := 0
				if i%300 == 299 {
					disturbed = 40
				}
				if i == 200 { // learnt
					clear(p.counted)
				}
				p.round(i < 3 || i%40 == 0 || disturbed > 0, disturbed)
			}
			for a, n := range p.counted {
				if a != actions.Default && a.Protocol == actions.LL {
					kept += float64(n) / (rounds - 200) / round / float64(sessions)
				}
			}
		}
		t.Logf("%s: %.3f of calls on the better choice", name, kept)
		if kept < 0.97 {
			t.Errorf("%s: %.3f of calls on the better choice, want 0.97", name, kept)
		}
	}
}
