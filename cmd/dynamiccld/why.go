package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/render"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
)

// whyReport is what `why --json` writes.
type whyReport struct {
	Source     string           `json:"source"`
	Collective string           `json:"collective"`
	Bytes      uint64           `json:"bytes"`
	Answers    []control.Bucket `json:"answers"`
	Graphs     []control.Replay `json:"graphs,omitempty"` // what CUDA graphs hold of it
	Reason     string           `json:"reason,omitempty"` // why there are no answers
}

func (a *app) whyCommand() *cobra.Command {
	var asJSON bool
	var from source
	cmd := &cobra.Command{
		Use:   "why COLLECTIVE BYTES",
		Short: "Explain the choice for a collective and size",
		Long: `Explain what is chosen for a collective of a size: since when, how much faster than
NCCL's default it is measured (with the 95% interval), its class of numerics (in which
order it adds up), what else was tried at which cost, and the last diagnosis; and what our
kernels take in the CUDA graphs that hold them.
COLLECTIVE is Broadcast, Reduce, AllGather, ReduceScatter, AllReduce or AllToAll, in any
case; of calls on registered memory AllGatherRegistered, ReduceScatterRegistered,
AllReduceRegistered or AllToAllRegistered. BYTES may have a suffix K, M, G (or KiB, ...),
powers of 1024, and is what NCCL passes to a tuner plugin.`,
		Example: `  dynamiccld why AllReduce 64KiB
  dynamiccld why allgather 4M --comm 7f3a52c1009be011
  dynamiccld why reduce_scatter 65536 --store /var/lib/dynamiccl/store.db --json`,
		Args: wantArgs("COLLECTIVE", "BYTES"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if len(args) == 0 {
				for c := range actions.Collective(actions.NumCollectives) {
					names = append(names, c.String())
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			want, bytes, err := parseBucket(args)
			if err != nil {
				return usageError(err)
			}
			all, name, none := a.buckets(cmd.Context(), from)
			if none != nil && !isUnknown(none) {
				return none
			}
			report := whyReport{Source: name, Collective: want.Collective.String(), Bytes: bytes, Answers: []control.Bucket{}}
			for _, b := range all {
				if b.Bucket == want {
					report.Answers = append(report.Answers, b)
				}
			}
			if report.Graphs, err = a.replays(cmd.Context(), from, want); err != nil {
				return err
			}
			switch {
			case len(report.Answers)+len(report.Graphs) > 0:
			case none != nil:
				report.Reason = none.Error()
			default:
				report.Reason = reason(want, all, name) + a.elsewhere(cmd.Context(), from)
			}
			return a.writeWhy(report, asJSON)
		},
	}
	a.sourceFlags(cmd, &from)
	a.commFlag(cmd, &from)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func parseBucket(args []string) (b state.Bucket, bytes uint64, err error) {
	c, err := actions.ParseCollective(args[0])
	if err != nil {
		return b, 0, err
	}
	bytes, err = units.ParseBytes(args[1])
	if err != nil {
		return b, 0, err
	}
	b, ok := state.BucketOf(c, bytes)
	if !ok {
		return b, bytes, fmt.Errorf("%s of %d bytes is never tuned: it moves nothing; ask for at least 1 byte", c, bytes)
	}
	return b, bytes, nil
}

func (a *app) writeWhy(report whyReport, asJSON bool) error {
	if asJSON {
		if err := render.JSON(a.stdout, report); err != nil {
			return err
		}
	} else {
		for i, b := range explained(report) {
			if i > 0 {
				fmt.Fprintln(a.stdout)
			}
			own := slices.DeleteFunc(slices.Clone(report.Graphs), func(r control.Replay) bool { return r.Comm != b.Comm })
			if err := render.Why(a.stdout, b, own, a.now()); err != nil {
				return err
			}
		}
	}
	if report.Reason != "" {
		return unknown("%s", report.Reason)
	}
	return nil
}

// explained are the answers, and what stands for one where graphs alone have this size: then nothing is chosen for calls.
func explained(report whyReport) []control.Bucket {
	all := slices.Clone(report.Answers)
	for _, r := range report.Graphs {
		if !slices.ContainsFunc(all, func(b control.Bucket) bool { return b.Comm == r.Comm }) {
			all = append(all, control.BucketOf(r))
		}
	}
	return all
}

// reason says why nothing is known and what would change that.
func reason(want state.Bucket, all []control.Bucket, name string) string {
	var seen []uint64
	for _, b := range all {
		if b.Bucket.Collective == want.Collective {
			seen = append(seen, b.MinBytes)
		}
	}
	slices.Sort(seen)
	var sizes []string
	for _, n := range slices.Compact(seen) {
		sizes = append(sizes, state.FormatBytes(n))
	}
	if len(sizes) == 0 {
		return fmt.Sprintf("%s has seen no %s: NCCL's own choice runs; `dynamiccld table` shows what was seen", name, want.Collective)
	}
	return fmt.Sprintf("%s has seen no %s of %s to %s: NCCL's own choice runs; seen were %s", name, want.Collective,
		state.FormatBytes(1<<want.Log2Bytes), state.FormatBytes(2<<want.Log2Bytes), strings.Join(sizes, ", "))
}
