package tuner

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"

	"pgregory.net/rapid"
)

var b64k = state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}

// The group's cost is the shortest duration over ranks, its counter that of the same rank, the skew the spread
// (docs/design.md, decision 6), whatever order the samples come in. Oracle: all samples of a call in a map.
func TestJoinerAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ranks := rapid.IntRange(1, 64).Draw(t, "ranks")
		calls := rapid.IntRange(1, 20).Draw(t, "calls")
		var all []*Sample
		for seq := range calls {
			for r := range ranks {
				signal := state.Ns(rapid.Int64Range(1, 1_000_000).Draw(t, "signal"))
				all = append(all, &Sample{Seq: uint64(seq), Rank: int32(r), Bucket: b64k, Bytes: 65536, SignalNs: signal, CounterNs: signal / 2})
			}
		}
		shuffled := rapid.Permutation(all).Draw(t, "order")
		j := joiner{heard: allRanks(ranks)}
		seen := map[uint64][]*Sample{}
		done := 0
		for _, s := range shuffled {
			seen[s.Seq] = append(seen[s.Seq], s)
			o, bad, complete := j.add(7, s)
			if complete != (len(seen[s.Seq]) == ranks) {
				t.Fatalf("call %d complete = %v with %d of %d ranks", s.Seq, complete, len(seen[s.Seq]), ranks)
			}
			if !complete {
				continue
			}
			done++
			least, most := seen[s.Seq][0].SignalNs, state.Ns(0)
			for _, x := range seen[s.Seq] {
				least, most = min(least, x.SignalNs), max(most, x.SignalNs)
			}
			if bad || o.SignalNs != least || o.SkewNs != most-least || o.CounterNs != least/2 || o.Seq != s.Seq || o.AtNs != 7 {
				t.Fatalf("observation %+v, want signal %d skew %d", o, least, most-least)
			}
		}
		if done != calls || j.incomplete != 0 || j.late != 0 || j.disagreed != 0 {
			t.Fatalf("%d of %d calls, incomplete %d late %d disagreed %d", done, calls, j.incomplete, j.late, j.disagreed)
		}
	})
}

func TestJoinerCountsWhatDoesNotFit(t *testing.T) {
	j := joiner{heard: allRanks(2)}
	ok := func(seq uint64, rank int32, a actions.Action) bool {
		_, bad, done := j.add(0, &Sample{Seq: seq, Rank: rank, Bucket: b64k, SignalNs: 10, Action: a})
		return done && !bad
	}
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Channels: 8}
	ok(0, 0, actions.Default)
	ok(0, 0, actions.Default) // the same rank twice
	if j.late != 1 {
		t.Errorf("late = %d after a repeated sample, want 1", j.late)
	}
	ok(groupWindow, 0, actions.Default) // call 0 never completes
	if j.incomplete != 1 {
		t.Errorf("incomplete = %d, want 1", j.incomplete)
	}
	ok(0, 1, actions.Default) // too late for call 0
	if j.late != 2 {
		t.Errorf("late = %d, want 2", j.late)
	}
	if ok(groupWindow, 1, ring) || j.disagreed != 1 {
		t.Errorf("ranks that ran different things: disagreed = %d, want 1", j.disagreed)
	}
	for _, s := range []*Sample{{Rank: -1, SignalNs: 5}, {Rank: 2, SignalNs: 5}, {Rank: 0, SignalNs: 0}, {Rank: 0, SignalNs: -3}} {
		if _, _, done := j.add(0, s); done {
			t.Errorf("%+v completed a group", s)
		}
	}
	if j.late != 6 {
		t.Errorf("late = %d, want 6: unusable samples are counted", j.late)
	}
}

func TestJoinerTellsOfASilentRankOnce(t *testing.T) {
	j := joiner{heard: allRanks(3)}
	told := 0
	for seq := range uint64(groupWindow + 4*silentCalls) {
		for _, r := range []int32{0, 2} {
			j.add(0, &Sample{Seq: seq, Rank: r, Bucket: b64k, SignalNs: 5})
			if rank, ok := j.silent(); ok {
				told++
				if rank != 1 {
					t.Errorf("rank %d is said to be silent, want 1", rank)
				}
			}
		}
	}
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
}

func BenchmarkJoiner8Ranks(b *testing.B) {
	j := joiner{heard: allRanks(8)}
	s := Sample{Bucket: b64k, SignalNs: 1000, CounterNs: 900, Bytes: 65536}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Seq, s.Rank = uint64(i/8), int32(i%8)
		j.add(0, &s)
	}
}
