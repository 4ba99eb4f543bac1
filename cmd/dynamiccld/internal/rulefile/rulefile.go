package rulefile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/state"
)

// ErrAmbiguous says that buckets of different machines, GPUs, NCCL versions or transports cannot share one file: its lines
// name ranks and nodes only.
var ErrAmbiguous = errors.New("choices of several kinds of machine, NCCL version or transport")

type shape struct{ nodes, ranks int }

// Sayable gives the buckets whose choice the format can say, and how many it cannot: those of our own kernels, and on registered memory,
// which NCCL's example does not know from other.
func Sayable(buckets []control.Bucket) (sayable []control.Bucket, ours int) {
	sayable = slices.DeleteFunc(slices.Clone(buckets), func(b control.Bucket) bool {
		a, err := actions.Parse(b.Choice)
		return err == nil && (a.Ours() || b.Bucket.Collective.Registered())
	})
	return sayable, len(buckets) - len(sayable)
}

// Rules gives the rules of all shapes, those with more nodes and ranks later. Where several communicators of one shape
// differ, the one with most calls speaks for the bucket. Buckets on NCCL's default give no rule.
func Rules(buckets []control.Bucket) ([]actions.Rule, error) {
	// NCCL's own choice is no rule, so whose it is does not matter.
	buckets = slices.DeleteFunc(slices.Clone(buckets), func(b control.Bucket) bool { return b.Choice == actions.Default.String() })
	if kinds := Kinds(buckets); len(kinds) > 1 {
		return nil, fmt.Errorf("%w: %s; choose one with --machine, --gpu-arch and --nccl-version", ErrAmbiguous, strings.Join(kinds, "; "))
	}
	if several := transports(buckets); len(several) > 0 {
		return nil, fmt.Errorf("%w: %s; choose one with --transport", ErrAmbiguous, strings.Join(several, "; "))
	}
	best := map[shape]map[state.Bucket]control.Bucket{}
	for _, b := range buckets {
		s := shape{b.Nodes, b.Ranks}
		if best[s] == nil {
			best[s] = map[state.Bucket]control.Bucket{}
		}
		if old, ok := best[s][b.Bucket]; !ok || b.Calls > old.Calls {
			best[s][b.Bucket] = b
		}
	}
	byShape := func(a, b shape) int { return cmp.Or(cmp.Compare(a.nodes, b.nodes), cmp.Compare(a.ranks, b.ranks)) }
	rules := []actions.Rule{}
	for _, s := range slices.SortedFunc(maps.Keys(best), byShape) {
		var choices []actions.BucketChoice
		for bucket, b := range best[s] {
			a, err := actions.Parse(b.Choice)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", bucket, err)
			}
			choices = append(choices, actions.BucketChoice{Collective: bucket.Collective, Log2Bytes: bucket.Log2Bytes, Action: a})
		}
		own, err := actions.RulesFor(choices, s.nodes, s.ranks)
		if err != nil {
			return nil, fmt.Errorf("%d ranks on %d nodes: %w", s.ranks, s.nodes, err)
		}
		rules = append(rules, own...)
	}
	return rules, nil
}

// Refused gives what must not run, of all shapes and whatever is chosen beside it. Lines name no transport, so what is refused over one is
// over all.
func Refused(buckets []control.Bucket) (all []actions.Refusal, err error) {
	buckets = slices.DeleteFunc(slices.Clone(buckets), func(b control.Bucket) bool { return len(b.Refused) == 0 })
	if kinds := Kinds(buckets); len(kinds) > 1 {
		return nil, fmt.Errorf("%w: %s; choose one with --machine, --gpu-arch and --nccl-version", ErrAmbiguous, strings.Join(kinds, "; "))
	}
	for _, b := range buckets {
		for _, name := range b.Refused {
			a, err := actions.Parse(name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", b.Bucket, err)
			}
			if r := (actions.Refusal{Collective: b.Bucket.Collective, Log2Bytes: b.Bucket.Log2Bytes, Action: a, Nodes: b.Nodes, Ranks: b.Ranks}); !slices.Contains(all, r) {
				all = append(all, r)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b actions.Refusal) int {
		return cmp.Or(cmp.Compare(a.Nodes, b.Nodes), cmp.Compare(a.Ranks, b.Ranks), cmp.Compare(a.Collective, b.Collective), cmp.Compare(a.Log2Bytes, b.Log2Bytes), cmp.Compare(a.Action.Word(), b.Action.Word()))
	})
	return all, nil
}

// Kinds lists the machines, GPU architectures and NCCL versions that buckets belong to.
func Kinds(buckets []control.Bucket) []string {
	seen := map[string]bool{}
	for _, b := range buckets {
		seen[fmt.Sprintf("machine %q, GPU %q, NCCL %q", b.Machine, b.GPUArch, b.NCCLVersion)] = true
	}
	return slices.Sorted(maps.Keys(seen))
}

// transports lists the shapes of which there are choices over several transports, "not known" being one.
func transports(buckets []control.Bucket) (several []string) {
	of := map[shape][]string{}
	for _, b := range buckets {
		s, name := shape{b.Nodes, b.Ranks}, cmp.Or(b.Transport, state.UnknownTransport)
		if !slices.Contains(of[s], name) {
			of[s] = append(of[s], name)
		}
	}
	for s, names := range of {
		if len(names) > 1 {
			slices.Sort(names)
			several = append(several, fmt.Sprintf("%d ranks on %d nodes over %s", s.ranks, s.nodes, strings.Join(names, " and ")))
		}
	}
	slices.Sort(several)
	return several
}

// Conditional counts the rules that cannot become a choice all ranks agree on (actions.Rule.Conditional).
func Conditional(rules []actions.Rule) int {
	n := 0
	for _, r := range rules {
		if r.Conditional() {
			n++
		}
	}
	return n
}

// JSON is a rule with stable keys: NCCL's names of the columns.
type JSON struct {
	Collective string `json:"collective_type"`
	MinBytes   uint64 `json:"min_bytes"`
	MaxBytes   uint64 `json:"max_bytes"`
	Algorithm  string `json:"algorithm"`
	Protocol   string `json:"protocol"`
	Channels   int    `json:"channels"`
	Nodes      int    `json:"nNodes"`
	Ranks      int    `json:"nRanks"`
	PipeOps    int    `json:"numPipeOps"`
	RegBuff    int    `json:"regBuff"`
}

// ToJSON gives rules their JSON form, never null.
func ToJSON(rules []actions.Rule) []JSON {
	out := make([]JSON, 0, len(rules))
	for _, r := range rules {
		out = append(out, JSON{r.Collective.String(), r.MinBytes, r.MaxBytes, r.Algorithm.String(), r.Protocol.String(),
			r.Channels, r.Nodes, r.Ranks, r.PipeOps, r.RegBuff})
	}
	return out
}
