package demo

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"dynamiccl/nccltuner/ranklog"
)

// worstOverDefault is what a phase may cost over NCCL's default, exploration included.
const worstOverDefault = 1.02

// report compares the logs of all ranks and prints a table a job.
func (d *demo) report() error {
	var failed error
	for _, j := range jobs {
		logs, err := filepath.Glob(filepath.Join(d.tmp, j.name+"-*.log"))
		if err != nil {
			return err
		}
		rep, err := ranklog.CompareFiles(logs...)
		if err != nil {
			return fmt.Errorf("reading the logs of %s: %w", j.name, err)
		}
		fmt.Fprintf(d.Out, "\n%s: %d calls of each rank\n", j.title, rep.Calls)
		if err := d.table(j, rep); err != nil {
			return err
		}
		fmt.Fprintf(d.Out, "disagreements of %d ranks: %d\n", rep.Ranks, rep.Disagreements)
		failed = errors.Join(failed, judge(j, rep))
	}
	return failed
}

func (d *demo) table(j job, rep ranklog.Report) error {
	w := tabwriter.NewWriter(d.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, strings.Join([]string{"phase", "NCCL default", "DynamICCL", "best possible", "over default", "over best",
		"calls until adapted", ""}, "\t"))
	for i, p := range rep.Phases {
		adapted := "not all"
		if calls, ok := p.MedianAdapted(); ok {
			adapted = fmt.Sprintf("%d (median bucket)", calls)
		}
		fmt.Fprintf(w, "%s\t%.1f ms\t%.1f ms\t%.1f ms\t%.3f\t%.3f\t%s\t\n", j.phases[i], p.DefaultNs/1e6, p.CostNs/1e6, p.BestNs/1e6,
			p.OverDefault(), p.OverBest(), adapted)
	}
	return w.Flush()
}

// judge says what must not be: ranks that disagree, a phase that lost, ranks whose calls were not all compared.
func judge(j job, rep ranklog.Report) error {
	var bad []error
	if rep.Disagreements > 0 {
		bad = append(bad, fmt.Errorf("%s: %d disagreements between ranks, first: %v", j.title, rep.Disagreements, rep.Details[0]))
	}
	if rep.Compared != rep.Calls || rep.Truncated > 0 || len(rep.Phases) != numPhases {
		bad = append(bad, fmt.Errorf("%s: %d of %d calls compared, %d logs cut short, %d phases: the run is not complete",
			j.title, rep.Compared, rep.Calls, rep.Truncated, len(rep.Phases)))
	}
	if rep.Chosen == 0 {
		bad = append(bad, fmt.Errorf("%s: no call ran anything but NCCL's default: nothing was tuned", j.title))
	}
	for i, p := range rep.Phases {
		if i < len(j.phases) && p.OverDefault() > worstOverDefault {
			bad = append(bad, fmt.Errorf("%s, phase %s: %.3f of NCCL's default, at most %.2f is allowed", j.title, j.phases[i], p.OverDefault(), worstOverDefault))
		}
	}
	return errors.Join(bad...)
}
