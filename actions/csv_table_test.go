package actions

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func collective(a Algorithm, p Protocol, channels uint8) Action {
	return Action{Path: PathCollective, Algorithm: a, Protocol: p, Channels: channels}
}

func TestRulesForMergesNeighbours(t *testing.T) {
	ring, tree := collective(Ring, LL, 0), collective(Tree, Simple, 8)
	rules, err := RulesFor([]BucketChoice{
		{AllReduce, 12, ring}, {AllReduce, 10, ring}, {AllReduce, 11, ring}, // out of order
		{AllReduce, 13, tree},
		{AllReduce, 14, Default}, // NCCL's own: a hole, not merged over
		{AllReduce, 15, tree},
		{AllGather, 47, ring}, {Broadcast, 0, ring},
	}, 1, 8)
	want := []Rule{
		{Broadcast, 1, 1, Ring, LL, 0, 1, 8, Any, Any},
		{AllGather, 1 << 47, math.MaxUint64, Ring, LL, 0, 1, 8, Any, Any},
		{AllReduce, 1 << 10, 1<<13 - 1, Ring, LL, 0, 1, 8, Any, Any},
		{AllReduce, 1 << 13, 1<<14 - 1, Tree, Simple, 8, 1, 8, Any, Any},
		{AllReduce, 1 << 15, 1<<16 - 1, Tree, Simple, 8, 1, 8, Any, Any},
	}
	if err != nil || !slices.Equal(rules, want) {
		t.Fatalf("%v, %v", rules, err)
	}
}

func TestRulesForRejects(t *testing.T) {
	for name, choices := range map[string][]BucketChoice{
		"bucket":          {{AllReduce, NumSizeBuckets, collective(Ring, LL, 0)}},
		"twice":           {{AllReduce, 3, Default}, {AllReduce, 3, collective(Ring, LL, 0)}},
		"symmetric":       {{AllReduce, 3, Action{Path: PathSymmetric}}},
		"our kernel":      {{AllReduce, 3, collective(Ring, LL, 0)}, {AllReduce, 4, Action{Path: PathLSA, Kernel: TwoShot, Channels: 4}}},
		"algorithm":       {{AllReduce, 3, collective(NumAlgorithms, LL, 0)}},
		"newer than ours": {{NumAsked, 3, collective(Ring, LL, 0)}},
	} {
		if rules, err := RulesFor(choices, 1, 8); !errors.Is(err, ErrBadRule) {
			t.Errorf("%s: %v, %v", name, rules, err)
		}
	}
	if _, err := RulesFor([]BucketChoice{{AllReduce, 4, Action{Path: PathLSA, Kernel: TwoShot, Channels: 4}}}, 1, 8); err == nil ||
		!strings.Contains(err.Error(), "AllReduce size bucket 4: lsa/twoshot/4 cannot be written") {
		t.Errorf("our kernel: %v; want bucket and choice named", err)
	}
	if _, err := RulesFor([]BucketChoice{{AllReduce, 3, collective(Ring, LL, 0)}}, 0, 8); !errors.Is(err, ErrBadRule) {
		t.Errorf("no nodes: %v", err)
	}
}

// A table, its rules, and the table read back from the rules say the same for every size: edges of buckets and sizes
// inside them, this shape and others.
func TestTableRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		few := []Action{Default, collective(Ring, LL, 0), collective(Tree, Simple, 8), collective(NVLS, Simple, 255)}
		var choices []BucketChoice
		table := map[[2]uint8]Action{}
		for c := range uint8(NumAsked) {
			for k := range uint8(NumSizeBuckets) {
				if a := rapid.SampledFrom(few).Draw(t, "action"); a != Default {
					choices = append(choices, BucketChoice{Collective(c), k, a})
					table[[2]uint8{c, k}] = a
				}
			}
		}
		nodes := rapid.SampledFrom([]int{Any, 1, 2}).Draw(t, "nodes")
		rules, err := RulesFor(choices, nodes, 8)
		if err != nil {
			t.Fatal(err)
		}
		for c := range uint8(NumAsked) {
			for k := range uint8(NumSizeBuckets) {
				first, last := bucketBytes(k)
				for _, bytes := range []uint64{first, last, rapid.Uint64Range(first, last).Draw(t, "bytes")} {
					if got := Lookup(rules, Collective(c), bytes, max(nodes, 1), 8); got != table[[2]uint8{c, k}] {
						t.Fatalf("%s %d bytes: %v, want %v", Collective(c), bytes, got, table[[2]uint8{c, k}])
					}
				}
			}
			if got := Lookup(rules, Collective(c), 1024, 3, 9); got != Default {
				t.Fatalf("another shape got %v", got)
			}
			if got := Lookup(rules, Collective(c), 0, max(nodes, 1), 8); got != Default {
				t.Fatalf("zero bytes got %v", got)
			}
		}
		back, split := ChoicesFor(rules, max(nodes, 1), 8)
		if !slices.Equal(back, choices) || split != nil {
			t.Fatalf("read back as %v, split %v", back, split)
		}
	})
}

func TestLookupTakesTheFirstMatchAndNoCondition(t *testing.T) {
	rules := []Rule{
		{AllReduce, 0, 100, Tree, LL, 1, Any, Any, Any, 1},     // looks at regBuff: ranks could differ
		{AllReduce, 0, 100, Tree, LL128, 1, Any, Any, 4, Any},  // looks at numPipeOps
		{AllReduce, 0, 100, NVLS, Simple, 2, 4, Any, Any, Any}, // another number of nodes
		{AllReduce, 50, 100, Ring, LL, Any, 1, 8, Any, Any},
		{AllReduce, 0, 100, Ring, Simple, 3, Any, Any, Any, Any},
	}
	for i, conditional := range []bool{true, true, false, false, false} {
		if rules[i].Conditional() != conditional {
			t.Errorf("rule %d: conditional %v", i, rules[i].Conditional())
		}
	}
	for _, c := range []struct {
		bytes        uint64
		nodes, ranks int
		want         Action
	}{
		{49, 1, 8, collective(Ring, Simple, 3)},
		{50, 1, 8, collective(Ring, LL, 0)},
		{100, 1, 8, collective(Ring, LL, 0)},
		{100, 1, 4, collective(Ring, Simple, 3)},
		{100, 4, 8, collective(NVLS, Simple, 2)},
		{101, 1, 8, Default},
	} {
		if got := Lookup(rules, AllReduce, c.bytes, c.nodes, c.ranks); got != c.want {
			t.Errorf("%d bytes, %d nodes, %d ranks: %v, want %v", c.bytes, c.nodes, c.ranks, got, c.want)
		}
	}
}

// NCCL's sample cuts at 65536 inclusive: one size of the 64 KiB bucket belongs to the smaller sizes' rule.
func TestChoicesForSplitBucket(t *testing.T) {
	small, large := collective(Tree, Simple, 2), collective(Ring, Simple, 4)
	choices, split := ChoicesFor([]Rule{
		{AllReduce, 32768, 65536, Tree, Simple, 2, Any, Any, Any, Any},
		{AllReduce, 65537, 1<<18 + 1<<17 - 1, Ring, Simple, 4, Any, Any, Any, Any},
	}, 1, 8)
	wantSplit := []BucketChoice{{AllReduce, 16, large}, {AllReduce, 18, large}} // the second is a draw: half is default
	want := []BucketChoice{{AllReduce, 15, small}, {AllReduce, 16, large}, {AllReduce, 17, large}, {AllReduce, 18, large}}
	if !slices.Equal(choices, want) || !slices.Equal(split, wantSplit) {
		t.Fatalf("choices %v, split %v", choices, split)
	}
}
