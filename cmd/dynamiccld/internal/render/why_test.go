package render

import (
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// What bounds the CTAs of our kernels, and what is hardly tried, are said in a line each, and nothing where nothing is.
func TestWhySaysWhatIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		view tuner.BucketView
		want string
	}{
		{tuner.BucketView{MostCTAs: 32, Beside: 3}, "places at most 32 CTAs: 3 kernels may wait beside it"},
		{tuner.BucketView{MostCTAs: 32, Computes: true}, "places at most 32 CTAs: the program computes between these calls, or beside them, and has what they leave (--step-guard)"},
		{tuner.BucketView{MostCTAs: 8}, "places at most 8 CTAs: the program lets NCCL's kernels have no more (NCCL_MAX_CTAS, NCCL_MAX_NCHANNELS, ncclConfig_t.maxCTAs)"},
		{tuner.BucketView{MostCTAs: 32, Beside: 1}, "places at most 32 CTAs: 1 kernel may wait beside it"},
		{tuner.BucketView{Silent: []actions.Action{{Path: actions.PathLSA, Kernel: actions.Bulk, Channels: 64}, {Path: actions.PathLSA, Channels: 4}}},
			"hardly tried lsa/bulk/64, lsa/oneshot/4: no times came of their trials, or of too few calls"},
		{tuner.BucketView{}, ""},
	} {
		var said strings.Builder
		if err := Why(&said, control.FromView(c.view, 0, time.Time{}), nil, time.Time{}); err != nil {
			t.Fatal(err)
		}
		left := ""
		for line := range strings.Lines(said.String()) {
			if line = strings.Join(strings.Fields(line), " "); strings.HasPrefix(line, "places ") || strings.HasPrefix(line, "hardly tried ") {
				left += line
			}
		}
		if left != c.want {
			t.Errorf("%q, want %q", left, c.want)
		}
	}
}

// The class of the choice and of all that was tried, where sums differ in it.
func TestWhySaysNumerics(t *testing.T) {
	ours, ring := actions.Action{Path: actions.PathLSA, Channels: 4}, actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring}
	gin := actions.Action{Path: actions.PathGIN, Backend: actions.BackendProxy, Channels: 4}
	view := func(c actions.Collective, chosen actions.Action, fixed bool) tuner.BucketView {
		v := tuner.BucketView{Bucket: state.Bucket{Collective: c, Log2Bytes: 16}, Shape: state.Shape{Ranks: 4, Nodes: 2}, Choice: chosen, Fixed: fixed}
		for _, a := range []actions.Action{actions.Default, ring, ours, gin} {
			v.Choices = append(v.Choices, tuner.ActionView{Action: a, Estimate: tuner.Estimate{N: 2, MeanNs: 1000}})
		}
		return v
	}
	for _, c := range []struct {
		view  tuner.BucketView
		class string
		rows  []string
	}{
		{view(actions.AllReduce, ours, false), "rank-order: in the order of ranks", []string{"nccl-default", "nccl-ring", "rank-order", "rank-order"}},
		{view(actions.ReduceScatter, gin, false), "node-order: half, float and bfloat16", []string{"nccl-default", "nccl-ring", "rank-order", "node-order"}},
		{view(actions.AllReduce, actions.Default, true), "nccl-default: in the order of what NCCL chooses", []string{"nccl-default", "nccl-ring", "rank-order", "rank-order"}},
		{view(actions.AllGather, ours, false), "no-sums: nothing is added up", []string{"1.00x", "1.00x", "1.00x", "1.00x"}},
	} {
		b := control.FromView(c.view, 0, time.Time{})
		var said strings.Builder
		if err := Why(&said, b, nil, time.Time{}); err != nil {
			t.Fatal(err)
		}
		var rows []string
		classes := 0
		for line := range strings.Lines(said.String()) {
			words := strings.Fields(line)
			switch {
			case len(words) > 1 && words[0] == "numerics":
				classes++
				if !strings.HasPrefix(strings.Join(words[1:], " "), c.class) || strings.HasSuffix(line, "exact in any class\n") != actions.ReductionOrderMatters(c.view.Bucket.Collective) {
					t.Errorf("%s", line)
				}
			case len(words) > 4 && words[1] == "2":
				rows = append(rows, words[len(words)-1])
			}
		}
		if classes != 1 || !slices.Equal(rows, c.rows) || b.Fixed != c.view.Fixed {
			t.Errorf("%d lines of numerics, rows %q, want %q\n%s", classes, rows, c.rows, said.String())
		}
	}
}

// What the step guard found is a line, and the note where NCCL's default is in force for it.
func TestWhySaysWhatStepsTook(t *testing.T) {
	kept := tuner.AuditView{Pairs: 9, LongerBy: -0.13, Low: -0.14, High: -0.125}
	vetoed := tuner.AuditView{Pairs: 14, LongerBy: 0.012, Low: 0.004, High: 0.02, Vetoed: true}
	doubtful := tuner.AuditView{Pairs: 40, LongerBy: 0.003, Low: -0.01, High: 0.02}
	for _, c := range []struct {
		view        tuner.BucketView
		want, atEnd string
	}{
		{tuner.BucketView{Audit: &kept}, "steps 13.0% shorter with what was chosen than with NCCL's default (12.5 to 14.0)",
			"steps are 13.0% shorter with what was chosen than with NCCL's default (12.5 to 14.0)"},
		{tuner.BucketView{Audit: &doubtful}, "steps 0.3% longer with what was chosen than with NCCL's default (-1.0 to 2.0): not beyond doubt",
			"steps are 0.3% longer with what was chosen than with NCCL's default (-1.0 to 2.0): not beyond doubt"},
		{tuner.BucketView{Audit: &vetoed, Note: vetoed.String()}, "advantage none for the program's steps, whatever calls gain; " +
			"note its steps are 1.2% longer with what was chosen (0.4 to 2.0): NCCL's default is in force", vetoed.String()},
		{tuner.BucketView{}, "", ""},
	} {
		var said strings.Builder
		b := control.FromView(c.view, 0, time.Time{})
		if err := Why(&said, b, nil, time.Time{}); err != nil {
			t.Fatal(err)
		}
		var left []string
		for line := range strings.Lines(said.String()) {
			line = strings.Join(strings.Fields(line), " ")
			if strings.HasPrefix(line, "steps ") || strings.HasPrefix(line, "note ") || c.view.Note != "" && strings.HasPrefix(line, "advantage ") {
				left = append(left, line)
			}
		}
		if got := strings.Join(left, "; "); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		b.Ledger = &control.Ledger{Calls: 10}
		got := say(t, control.RunReport{Comms: []control.RunComm{tuned(b)}})
		_, line, _ := strings.Cut(got, "dynamiccld: step guard: of a communicator ")
		if line, _, _ = strings.Cut(line, "\n"); line != c.atEnd {
			t.Errorf("at the end of a run %q, want %q: %s", line, c.atEnd, got)
		}
	}
}
