package tuner

import (
	"math"
	"math/bits"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"

	"pgregory.net/rapid"
)

var oneShot4 = actions.Action{Path: actions.PathLSA, Kernel: actions.OneShot, Channels: 4}

// pushOut fills a joiner's window with replays of all ranks, from a number on.
func pushOut(j *replayJoiner, t *ReplayTotals, from uint32) {
	for i := range uint32(replayWindow) {
		for rank := range bits.Len64(j.heard) {
			j.add(t, &Replay{Number: from + i, Rank: int32(rank), Bucket: b64k, SignalNs: 5})
		}
	}
}

// Whatever order ranks tell in, whatever is lost or told twice, and where numbers wrap: a replay is joined once, when its last
// rank tells of it, at the cost of the shortest rank (the longest of a Broadcast). Oracle: all samples of a number in a map.
func TestReplayJoinerAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 8).Draw(t, "ranks")
		bucket := b64k
		if rapid.Bool().Draw(t, "broadcast") {
			bucket.Collective = actions.Broadcast
		}
		number := rapid.SampledFrom([]uint32{0, 1 << 20, math.MaxUint32 - 500, math.MaxInt32 - 500}).Draw(t, "first")
		var all, lost []*Replay
		var numbers []uint32
		for range rapid.IntRange(1, 20).Draw(t, "replays") {
			number += rapid.Uint32Range(1, 200).Draw(t, "step")
			numbers = append(numbers, number)
			for r := range ranks {
				signal := state.Ns(rapid.Int64Range(1, 1000).Draw(t, "signal"))
				s := &Replay{Number: number, Rank: int32(r), Bucket: bucket, Bytes: 65536, Action: oneShot4, SignalNs: signal,
					CounterNs: state.Ns(rapid.Int64Range(0, int64(signal)).Draw(t, "counter"))}
				switch rapid.IntRange(0, 9).Draw(t, "fate") {
				case 0:
					lost = append(lost, s)
				case 1:
					all = append(all, s, s)
				default:
					all = append(all, s)
				}
			}
		}
		j, totals := replayJoiner{heard: allRanks(ranks)}, ReplayTotals{}
		told := map[uint32]map[int32]replayCost{}
		joined, late := 0, uint64(0)
		for _, s := range rapid.Permutation(all).Draw(t, "order") {
			if told[s.Number] == nil {
				told[s.Number] = map[int32]replayCost{}
			}
			_, twice := told[s.Number][s.Rank]
			told[s.Number][s.Rank] = replayCost{s.SignalNs, s.CounterNs}
			o := j.add(&totals, s)
			if twice {
				late++
			}
			if want := !twice && len(told[s.Number]) == ranks; (o != nil) != want {
				t.Fatalf("number %d joined: %v, with %d of %d ranks", s.Number, o != nil, len(told[s.Number]), ranks)
			}
			if o == nil {
				continue
			}
			joined++
			best := replayCost{s.SignalNs, s.CounterNs}
			for _, c := range told[s.Number] {
				if bucket.Collective == actions.Broadcast && best.less(c) || bucket.Collective != actions.Broadcast && c.less(best) {
					best = c
				}
			}
			if o.number != s.Number || o.cost != best || o.bucket != bucket || o.bytes != 65536 || o.action != oneShot4 {
				t.Fatalf("%+v, want cost %+v", o, best)
			}
		}
		if totals != (ReplayTotals{Late: late}) {
			t.Fatalf("%+v, want %d late", totals, late)
		}
		pushOut(&j, &totals, number+1)
		if open := len(told) - joined; totals != (ReplayTotals{Late: late, Incomplete: uint64(open)}) {
			t.Fatalf("%+v, want %d late and %d incomplete", totals, late, open)
		}
		for _, s := range lost { // which have come too late
			if o := j.add(&totals, s); told[s.Number] != nil && o != nil {
				t.Fatalf("number %d joined after it was given up", s.Number)
			}
		}
		if seen := len(told) == len(numbers); seen && totals.Late != late+uint64(len(lost)) {
			t.Fatalf("%+v, want %d late", totals, late+uint64(len(lost)))
		}
	})
}

// Ranks that differ in anything but time are counted once a replay and cost nothing; so is a kernel that is not the choice's.
func TestReplayJoinerOfRanksThatDiffer(t *testing.T) {
	for name, change := range map[string]func(*Replay){
		"bucket":     func(r *Replay) { r.Bucket.Log2Bytes++ },
		"collective": func(r *Replay) { r.Bucket.Collective = actions.Broadcast },
		"bytes":      func(r *Replay) { r.Bytes++ },
		"action":     func(r *Replay) { r.Action.Channels = 16 },
		"CTAs":       func(r *Replay) { r.Ran.Channels = 2 },
		"kernel":     func(r *Replay) { r.Ran.Kernel = actions.TwoShot },
	} {
		for odd := range int32(3) {
			j, totals := replayJoiner{heard: allRanks(3)}, ReplayTotals{}
			for number := range uint32(4) {
				for _, rank := range []int32{1, 2, 0} {
					r := Replay{Number: number, Rank: rank, Bucket: b64k, Bytes: 65536, Action: oneShot4, Ran: oneShot4, SignalNs: 9}
					if rank == 2 {
						r.Ran = actions.Default // it cannot tell: that is no difference
					}
					if rank == odd && number%2 == 1 {
						r.Ran = oneShot4
						change(&r)
					}
					if o := j.add(&totals, &r); (o != nil) != (rank == 0 && number%2 == 0) {
						t.Errorf("%s on rank %d: number %d joined %v by rank %d", name, odd, number, o != nil, rank)
					}
				}
			}
			if totals != (ReplayTotals{Disagreed: 2}) {
				t.Errorf("%s on rank %d: %+v", name, odd, totals)
			}
		}
	}
	j, totals := replayJoiner{heard: allRanks(1)}, ReplayTotals{}
	two := Replay{Bucket: b64k, Action: oneShot4, Ran: actions.Action{Path: actions.PathLSA, Kernel: actions.TwoShot}, SignalNs: 9}
	if j.add(&totals, &two) != nil || totals.Disagreed != 1 {
		t.Errorf("another kernel on all ranks: %+v", totals)
	}
}

// Ranks tell of half a second at once, one after the other; and of nothing for long, over half a round of numbers.
func TestReplayJoinerOfBursts(t *testing.T) {
	const ranks, burst = 4, 2500
	j, totals := replayJoiner{heard: allRanks(ranks)}, ReplayTotals{}
	joined, number := 0, uint32(math.MaxUint32-20*burst)
	for range 10 {
		for rank := range int32(ranks) {
			for i := range uint32(burst) {
				if j.add(&totals, &Replay{Number: number + 64*i, Rank: rank, Bucket: b64k, SignalNs: 5}) != nil {
					joined++
				}
			}
		}
		number += 64 * burst
	}
	if joined != 10*burst || totals != (ReplayTotals{}) {
		t.Errorf("%d of %d joined, %+v", joined, 10*burst, totals)
	}
	number += 1<<31 + 1 // nobody listened
	for i := range uint32(burst) {
		for rank := range int32(ranks) {
			j.add(&totals, &Replay{Number: number + i, Rank: rank, Bucket: b64k, SignalNs: 5})
		}
	}
	if totals.Late != stuckSamples || len(j.at) < burst-stuckSamples/ranks-1 {
		t.Errorf("%+v, %d open: it should have begun anew", totals, len(j.at))
	}
}

// What no clock and no rank can mean is counted as late; a wild number costs what comes until joining begins anew.
func TestReplayJoinerOfNonsense(t *testing.T) {
	j, totals := replayJoiner{heard: allRanks(2)}, ReplayTotals{}
	for i, r := range []Replay{{Rank: -1, SignalNs: 5}, {Rank: 2, SignalNs: 5}, {Rank: math.MaxInt32, SignalNs: 5}, {Rank: math.MinInt32, SignalNs: 5},
		{}, {SignalNs: -3}, {SignalNs: 5, CounterNs: 6}, {SignalNs: 5, CounterNs: -1}} {
		if j.add(&totals, &r) != nil || totals.Late != uint64(i+1) || len(j.at) != 0 {
			t.Errorf("%+v: %+v, %d open", r, totals, len(j.at))
		}
	}
	j, totals = replayJoiner{heard: allRanks(2)}, ReplayTotals{}
	j.add(&totals, &Replay{Number: 1 << 30, Bucket: b64k, SignalNs: 5})
	pushOut(&j, &totals, 0)
	pushOut(&j, &totals, replayWindow)
	if totals.Late != stuckSamples || totals.Incomplete == 0 || len(j.open) != replayWindow-stuckSamples/2 {
		t.Errorf("%+v, %d open", totals, len(j.open))
	}
}

func BenchmarkReplayJoiner4Ranks(b *testing.B) {
	j, totals := replayJoiner{heard: allRanks(4)}, ReplayTotals{}
	r := Replay{Bucket: b64k, Bytes: 65536, Action: oneShot4, Ran: oneShot4, SignalNs: 3000, CounterNs: 900}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Number, r.Rank = uint32(i/4)*64, int32(i%4)
		j.add(&totals, &r)
	}
}
