package agents

import (
	"slices"
	"testing"

	"dynamiccl/actions"
)

// ladder is one line of 16 channel numbers.
func ladder() []actions.Action {
	set := []actions.Action{actions.Default}
	for c := range uint8(16) {
		set = append(set, actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: c + 1})
	}
	return set
}

func TestSplitLines(t *testing.T) {
	set := fullSet()
	slices.Reverse(set[1:])
	lines := splitLines(set)
	if len(lines) != 6 {
		t.Fatalf("%d lines", len(lines))
	}
	for _, l := range lines {
		if len(l.arms) != 7 || !slices.IsSortedFunc(l.arms, func(i, j int) int { return int(set[i].Channels) - int(set[j].Channels) }) {
			t.Errorf("line %v is not the seven channel numbers in order", l.arms)
		}
	}
}

// Steps outward double, steps inward halve: 0-based positions of 16.
func TestLineSearchSteps(t *testing.T) {
	for _, c := range []struct {
		measured map[int]float64
		want     []int
	}{
		{map[int]float64{15: 100}, []int{14}},
		{map[int]float64{15: 100, 14: 90}, []int{13}},
		{map[int]float64{15: 100, 13: 90}, []int{11, 14}},
		{map[int]float64{15: 100, 11: 90}, []int{7, 13}},
		{map[int]float64{15: 100, 11: 90, 3: 95}, []int{7, 13}},
		{map[int]float64{15: 100, 1: 90}, []int{0, 8}},
		{map[int]float64{0: 90, 15: 100}, []int{7}},
		{map[int]float64{4: 100, 5: 90, 6: 100}, nil},
		{map[int]float64{0: 90, 1: 100}, nil},
	} {
		d := newDescent(Task{Set: ladder(), Bucket: bucketOf(28)}).(*descent)
		for at, cost := range c.measured {
			d.arms.samples[at+1].add(cost)
		}
		l := &d.lines[0]
		l.survey(d, nil, 0)
		if got := l.next(d); !slices.Equal(got, c.want) {
			t.Errorf("measured %v: next %v, want %v", c.measured, got, c.want)
		}
	}
}

func TestLineBeginsAtTheMostChannelsWhereBandwidthCounts(t *testing.T) {
	for log2Bytes, want := range map[uint8][]int{28: {15}, 10: {15, 0, 7}} {
		d := newDescent(Task{Set: ladder(), Bucket: bucketOf(log2Bytes)}).(*descent)
		l := &d.lines[0]
		l.survey(d, nil, 0)
		if got := l.next(d); !slices.Equal(got, want) {
			t.Errorf("2^%d bytes: begins at %v, want %v", log2Bytes, got, want)
		}
	}
}

func TestLineIsGivenUp(t *testing.T) {
	for _, c := range []struct {
		line   line
		drift  float64
		behind bool
	}{
		{line{best: -1, cost: 9}, 0, false},
		{line{best: 0, cost: 0.45, measured: 1}, 0, false},
		{line{best: 0, cost: 0.55, measured: 1}, 0, true},
		{line{best: 0, cost: 0.45, measured: 3}, 0, true},
		{line{best: 0, cost: 0.7, remembered: true}, 0.05, true},
		{line{best: 0, cost: 0.7, remembered: true}, 0.6, false},
	} {
		if c.line.behind(0, c.drift) != c.behind {
			t.Errorf("%+v, drift %.2f: want given up %v", c.line, c.drift, c.behind)
		}
	}
}

func TestOneSampleIsNoBase(t *testing.T) {
	set := fullSet()
	for _, name := range adaptive() {
		l := makeLearner(t, name, set, bucketOf(12), nil, 1)
		for range 4 {
			l.Observe(seen(set[0], 1e5))
		}
		l.Observe(seen(set[5], 10))
		if base, _ := l.Propose(4); base != actions.Default {
			t.Errorf("%s: %s is the base after one sample", name, base)
		}
		l.Observe(seen(set[5], 10))
		if base, _ := l.Propose(4); base != set[5] {
			t.Errorf("%s: base %s after two samples of a hundredth of the cost", name, base)
		}
	}
}
