package actions

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// NumSizeBuckets is DYN_NUM_BUCKETS of nccltuner/abi.h: bucket k holds the sizes with floor(log2(bytes)) = k, the last
// one every larger size as well.
const NumSizeBuckets = 48

// BucketChoice is one cell of a decision table.
type BucketChoice struct {
	Collective Collective
	Log2Bytes  uint8
	Action     Action
}

func bucketBytes(k uint8) (first, last uint64) {
	if k >= NumSizeBuckets-1 {
		return 1 << (NumSizeBuckets - 1), math.MaxUint64
	}
	return 1 << k, 1<<(k+1) - 1
}

// RulesFor writes the decision table of one communicator shape as rules, neighbours with the same action merged.
// Buckets on NCCL's default get no rule: the format cannot say "NCCL's own choice", so what is not listed is left out.
func RulesFor(choices []BucketChoice, nodes, ranks int) ([]Rule, error) {
	sorted := slices.Clone(choices)
	slices.SortFunc(sorted, func(a, b BucketChoice) int {
		return cmp.Or(cmp.Compare(a.Collective, b.Collective), cmp.Compare(a.Log2Bytes, b.Log2Bytes))
	})
	var rules []Rule
	for i, c := range sorted {
		if c.Log2Bytes >= NumSizeBuckets {
			return nil, fmt.Errorf("size bucket %d: want at most %d: %w", c.Log2Bytes, NumSizeBuckets-1, ErrBadRule)
		}
		if i > 0 && c.Collective == sorted[i-1].Collective && c.Log2Bytes == sorted[i-1].Log2Bytes {
			return nil, fmt.Errorf("%s size bucket %d: two choices for one bucket: %w", c.Collective, c.Log2Bytes, ErrBadRule)
		}
		switch c.Action.Path {
		case PathDefault:
			continue
		case PathCollective:
		default:
			return nil, fmt.Errorf("%s size bucket %d: %s cannot be written as a rule of NCCL's CSV, which has NCCL's own algorithms alone: %w",
				c.Collective, c.Log2Bytes, c.Action, ErrBadRule)
		}
		first, last := bucketBytes(c.Log2Bytes)
		rule := Rule{Collective: c.Collective, MinBytes: first, MaxBytes: last,
			Algorithm: c.Action.Algorithm, Protocol: c.Action.Protocol, Channels: int(c.Action.Channels),
			Nodes: nodes, Ranks: ranks, PipeOps: Any, RegBuff: Any}
		if field, err := rule.check(); err != nil {
			return nil, fmt.Errorf("%s size bucket %d, field %s: %w", c.Collective, c.Log2Bytes, field, err)
		}
		if n := len(rules); n > 0 && rules[n-1].Collective == c.Collective && rules[n-1].MaxBytes == first-1 &&
			rules[n-1].Action() == rule.Action() {
			rules[n-1].MaxBytes = last
			continue
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// Action is what the rule asks for.
func (r Rule) Action() Action {
	return Action{Path: PathCollective, Algorithm: r.Algorithm, Protocol: r.Protocol, Channels: uint8(max(r.Channels, 0))}
}

// Conditional says that the rule looks at numPipeOps or regBuff. Ranks of one call may differ in regBuff, so such a
// rule cannot become a choice that all ranks agree on (docs/design.md, decision 2): Lookup passes over it, and whoever
// imports a file should say so.
func (r Rule) Conditional() bool { return r.PipeOps != Any || r.RegBuff != Any }

// Lookup gives the action of the first unconditional rule that matches the call, Default when none does.
func Lookup(rules []Rule, c Collective, bytes uint64, nodes, ranks int) Action {
	for _, r := range rules {
		if !r.Conditional() && r.Collective == c && bytes >= r.MinBytes && bytes <= r.MaxBytes &&
			(r.Nodes == Any || r.Nodes == nodes) && (r.Ranks == Any || r.Ranks == ranks) {
			return r.Action()
		}
	}
	return Default
}

// ChoicesFor reads rules back as the decision table of a communicator shape; buckets on Default are not listed.
// A rule may begin or end inside a bucket (NCCL's sample file cuts at 65536 inclusive): the bucket then gets the action
// that holds for most of its sizes, the smaller sizes winning a draw, and is also listed in split.
func ChoicesFor(rules []Rule, nodes, ranks int) (choices, split []BucketChoice) {
	for c := range Collective(NumAsked) {
		for k := range uint8(NumSizeBuckets) {
			action, whole := bucketAction(rules, c, k, nodes, ranks)
			choice := BucketChoice{c, k, action}
			if !whole {
				split = append(split, choice)
			}
			if action != Default {
				choices = append(choices, choice)
			}
		}
	}
	return choices, split
}

// bucketAction looks only at the sizes where some rule begins or ends: between them nothing changes.
func bucketAction(rules []Rule, c Collective, k uint8, nodes, ranks int) (action Action, whole bool) {
	first, last := bucketBytes(k)
	cuts := []uint64{first}
	for _, r := range rules {
		if r.MinBytes > first && r.MinBytes <= last {
			cuts = append(cuts, r.MinBytes)
		}
		if r.MaxBytes >= first && r.MaxBytes < last {
			cuts = append(cuts, r.MaxBytes+1)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	covered := map[Action]uint64{}
	var best Action
	for i, from := range cuts {
		end := last
		if i+1 < len(cuts) {
			end = cuts[i+1] - 1
		}
		a := Lookup(rules, c, from, nodes, ranks)
		covered[a] += end - from + 1
		if i == 0 || covered[a] > covered[best] {
			best = a
		}
	}
	return best, len(covered) == 1
}
