package tuner

import (
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// clockRig plays ranks whose GPU clocks are apart and drift, and whose host hears late.
type clockRig struct {
	rng    *rand.Rand
	offset []int64
	rate   []float64
	now    int64 // host's clock
}

func newClockRig(ranks int, seed uint64) *clockRig {
	r := &clockRig{rng: rand.New(rand.NewPCG(seed, 1)), now: 1e12}
	for range ranks {
		r.offset = append(r.offset, r.rng.Int64N(1e12))
		r.rate = append(r.rate, (r.rng.Float64()*2-1)*1e-5)
	}
	return r
}

// sample is what rank tells of a kernel between two instants of the host's clock.
func (r *clockRig) sample(seq uint64, rank int, start, end int64) *Sample {
	gpu := func(host int64) int64 { return host - r.offset[rank] + int64(r.rate[rank]*float64(host)) }
	told := start + 400 + int64(3000*r.rng.ExpFloat64())
	return &Sample{Seq: seq, Rank: int32(rank), Bucket: b64k, Bytes: 65536, StartNs: uint64(gpu(start)), ClockNs: told - gpu(start),
		SignalNs: state.Ns(end - start), CounterNs: state.Ns(end-start) / 2, Ran: treeLL, Action: treeLL}
}

var treeLL = actions.Action{Path: actions.PathCollective, Algorithm: actions.Tree, Protocol: actions.LL}

// A tree whose root is often the last to arrive and is then done long before the others: the cost is from the last start
// to the last end, whoever came last, to half a microsecond.
func TestGroupCostOfATreeWithALateRoot(t *testing.T) {
	const ranks, cost, rootNs = 4, 7000, 2300
	launch := launchNs(treeLL)
	for seed := range uint64(5) {
		rig := newClockRig(ranks, seed)
		j := joiner{heard: allRanks(ranks)}
		unclocked, calls, off := 0, 0, 0
		for seq := range uint64(4000) {
			rig.now += 200_000
			starts := make([]int64, ranks)
			last := 0
			for r := range starts {
				starts[r] = rig.now + rig.rng.Int64N(20_000)
				if r == 0 {
					starts[r] += rig.rng.Int64N(30_000)
				}
				if starts[r] > starts[last] {
					last = r
				}
			}
			for r := range ranks {
				end := starts[last] + cost - int64(rig.rng.IntN(300))
				if r == last && r == 0 {
					end = starts[last] + rootNs
				}
				if r == 1 {
					end = starts[last] + cost // somebody is the last to end
				}
				o, bad, done := j.add(0, rig.sample(seq, r, starts[r], end))
				switch {
				case !done:
				case bad:
					unclocked++
				default:
					calls++
					if seq > 500 && (o.SignalNs < cost+launch-500 || o.SignalNs > cost+launch+500 || (int(o.FirstRank) != last && starts[last]-starts[o.FirstRank] > 500)) {
						off++
					}
				}
			}
		}
		if unclocked >= clockMinimum || uint64(unclocked) != j.unclocked {
			t.Errorf("seed %d: %d calls came before the clocks were known (%d counted)", seed, unclocked, j.unclocked)
		}
		if off > calls/100 {
			t.Errorf("seed %d: %d of %d calls are off by more than 0.5 us", seed, off, calls)
		}
	}
}

// Host-timed ranks (profiler v1 to v3) share the host's clock from the first call.
func TestGroupCostOnTheHostsClock(t *testing.T) {
	j := joiner{heard: allRanks(2)}
	add := func(rank int32, start uint64, signal state.Ns) (state.Observation, bool, bool) {
		return j.add(0, &Sample{Rank: rank, Bucket: b64k, StartNs: start, HostTimed: true, SignalNs: signal, CounterNs: signal, Ran: treeLL})
	}
	add(0, 1_000_000, 9000)
	o, bad, done := add(1, 1_004_000, 2000)
	if !done || bad || o.SignalNs != 5000 || o.SkewNs != 4000 || o.FirstRank != 1 || o.CounterNs != 2000 {
		t.Errorf("%+v bad %v done %v, want 5000 ns after the last start", o, bad, done)
	}
}

// Instants that cannot be are not believed, and what is left is the shortest duration, for rings alone.
func TestGroupCostWithoutInstants(t *testing.T) {
	for _, c := range []struct {
		name string
		ran  actions.Action
		bad  bool
	}{
		{"ring", actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring}, false},
		{"tree", treeLL, true},
	} {
		j := joiner{heard: allRanks(2)}
		for r := range int32(2) {
			o, bad, done := j.add(0, &Sample{Rank: r, Bucket: b64k, StartNs: 1 << 63, ClockNs: -1 << 63, SignalNs: 9000 - 1000*state.Ns(r), Ran: c.ran})
			if done && (bad != c.bad || (!bad && o.SignalNs != 8000+launchNs(c.ran))) {
				t.Errorf("%s: %+v bad %v, want 8000 ns, the launch, and bad %v", c.name, o, bad, c.bad)
			}
		}
	}
}

// A profiler thread that came late tells another call's times: on one rank a start after the others' end, or a stop of 64
// calls later. Over a network the latter may be true.
func TestGroupsThatContradictThemselves(t *testing.T) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring}
	for _, c := range []struct {
		name       string
		start, end int64 // of rank 1; rank 0 is from 0 to 6000
		recv       int64
		collective actions.Collective
		ran        actions.Action
		bad        bool
		want       state.Ns
	}{
		{"as it should be", 1000, 6300, 0, actions.AllReduce, ring, false, 5300},
		{"within the clocks' error", 7000, 7500, 0, actions.AllReduce, ring, false, 500},
		{"starts after the other's end", 9000, 15000, 0, actions.AllReduce, ring, true, 0},
		{"device kernel starts after the other's end", 9000, 15000, 0, actions.AllReduce, actions.Action{}, true, 0},
		{"a broadcast's root may be done", 9000, 15000, 0, actions.Broadcast, ring, false, 6000},
		{"a leaf of a tree may be done", 9000, 15000, 0, actions.AllReduce, treeLL, false, 6000},
		{"stops long after", 100, 320_000, 0, actions.AllReduce, ring, true, 0},
		{"stops long after, by network", 100, 320_000, 319_000, actions.AllReduce, ring, false, 319_900},
		{"a leaf of a tree receives later", 100, 2000, 7000, actions.AllReduce, treeLL, false, 6900},
	} {
		j := joiner{heard: allRanks(2)}
		var o state.Observation
		var bad, done bool
		b := state.Bucket{Collective: c.collective, Log2Bytes: 16}
		for seq := range uint64(clockMinimum) { // the clocks get known
			for r := range int32(2) {
				at := 1_000_000_000 + 100_000*int64(seq)
				s := &Sample{Seq: seq, Rank: r, Bucket: b, Bytes: 65536, StartNs: uint64(at), ClockNs: 1, SignalNs: 6000, Ran: c.ran}
				if seq == clockMinimum-1 && r == 1 {
					s.StartNs, s.SignalNs = uint64(at+c.start), state.Ns(c.end-c.start)
					if c.recv != 0 {
						s.RecvNs = at + c.recv + 1
					}
				}
				o, bad, done = j.add(0, s)
			}
		}
		if !done || bad != c.bad || (!bad && o.SignalNs != c.want+launchNs(c.ran)) {
			t.Errorf("%s: %d ns, bad %v, want %d ns and the launch, bad %v", c.name, o.SignalNs, bad, c.want, c.bad)
		}
		if (j.incoherent == 1) != c.bad {
			t.Errorf("%s: %d counted as incoherent", c.name, j.incoherent)
		}
	}
}
