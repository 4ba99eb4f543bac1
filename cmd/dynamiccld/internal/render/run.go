package render

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/tuner"
)

// runRows is how many sizes the end of a run shows: about a screen.
const runRows = 24

// prefix begins every line that goes between a command's own.
const prefix = "dynamiccld: "

// Run writes what a run gained, by collective and size, and one line in total; when nothing was tuned, one line why; then what was
// done for NCCL's Socket network, and what our kernels took in CUDA graphs. One more line says which choices went into graphs without anything to go by.
func Run(w io.Writer, r control.RunReport) error {
	if err := runGains(w, r); err != nil {
		return err
	}
	if err := runTraffic(w, r.Traffic); err != nil {
		return err
	}
	if err := runGraphs(w, r); err != nil {
		return err
	}
	return runBlind(w, r)
}

func runGains(w io.Writer, r control.RunReport) error {
	var rows []control.Bucket
	var calls uint64
	followed := false
	var passed []string // why communicators were not tuned, or only in part
	for _, c := range r.Comms {
		if !c.Follows {
			calls += c.Calls
		}
		switch {
		case c.Follows && c.PlanAgreed == 0:
			passed = append(passed, "was not tuned: no plan of the daemon of rank 0's host came into force")
		case c.Follows:
			followed = true
		case c.Why != "" && c.Active:
			passed = append(passed, "was tuned in part: "+c.Why)
		case c.Why != "":
			passed = append(passed, "passed through: "+c.Why)
		}
		for _, b := range c.Buckets {
			switch {
			case b.Ledger != nil:
				rows = append(rows, b)
			case b.Choice != "default": // from the store, and nothing to hold it against was measured
				b.Ledger = &control.Ledger{}
				rows = append(rows, b)
			}
		}
	}
	if followed {
		fmt.Fprintln(w, prefix+"communicators over several hosts were tuned by the daemon of their rank 0's host: the run there reports them")
	}
	if len(rows) == 0 && followed && len(passed) == 0 {
		return nil
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintf(w, prefix+"nothing was tuned: %s\n", whyNothing(r, passed))
		return err
	}
	rows = merge(rows)
	total, faster, stored := totals(rows)
	if faster > 0 || stored > 0 || total.Trials > 0 {
		if err := runTable(w, rows); err != nil {
			return err
		}
	}
	for _, why := range slices.Compact(passed) {
		fmt.Fprintf(w, prefix+"a communicator %s\n", why)
	}
	if i := slices.IndexFunc(rows, func(b control.Bucket) bool { return b.Reward != "" }); i >= 0 {
		fmt.Fprintf(w, prefix+"reward %s: %s\n", rows[i].Reward, rewardMeans)
	}
	stepsLine(w, rows)
	if stored > 0 {
		fmt.Fprintf(w, prefix+"stored choices ran at %s; NCCL's default was not measured beside them\n", units.Count(stored, "size"))
		if faster == 0 && total.SavedNs == 0 {
			return nil
		}
	}
	_, err := fmt.Fprintln(w, prefix+totalLine(total, faster, len(rows), calls)+watchingCost(r))
	return err
}

// stepsLine says what comparing steps with NCCL's default came to, of a communicator that runs it for that reason if there is one.
func stepsLine(w io.Writer, rows []control.Bucket) {
	compared := func(vetoed bool) int {
		return slices.IndexFunc(rows, func(b control.Bucket) bool { return b.Steps != nil && b.Steps.Vetoed == vetoed })
	}
	if i := compared(true); i >= 0 {
		steps := tuner.AuditView(*rows[i].Steps)
		fmt.Fprintf(w, prefix+"step guard: of a communicator %s\n", &steps)
	} else if i := compared(false); i >= 0 {
		steps := tuner.AuditView(*rows[i].Steps)
		fmt.Fprintf(w, prefix+"step guard: of a communicator steps are %s\n", &steps)
	}
}

func whyNothing(r control.RunReport, passed []string) string {
	switch {
	case len(passed) > 0:
		_, why, _ := strings.Cut(passed[0], ": ")
		return why
	case len(r.Comms) > 0:
		for _, c := range r.Comms {
			for _, b := range c.Buckets {
				if b.Reward != "" && b.Note != "" {
					return "reward " + b.Reward + ": " + b.Note
				}
			}
		}
		return "too few calls were measured"
	case r.Elsewhere > 0:
		return "the run of another rank reports the communicators of this one"
	}
	const handOn = "Ray, ssh launchers and containers have to be given what `dynamiccld env` prints"
	if r.Strays > 0 {
		return fmt.Sprintf("no communicator of this run joined, and %s came from processes that do not have its variables; %s", units.Count(r.Strays, "communicator"), handOn)
	}
	return "no communicator joined: the command made none, its ranks have said why not, were started without this run's variables, or its NCCL did not load the plugin (NCCL_DEBUG=INFO says why); " + handOn
}

// merge makes one row of a collective and size that several communicators of one shape have: choice and advantage are
// those of the one with most calls, the ledgers are added up.
func merge(rows []control.Bucket) []control.Bucket {
	key := func(b control.Bucket) string { return fmt.Sprint(b.Bucket, b.Ranks, b.Nodes) }
	slices.SortStableFunc(rows, func(a, b control.Bucket) int { return cmp.Compare(b.Calls, a.Calls) })
	index := map[string]int{}
	var out []control.Bucket
	for _, b := range rows {
		i, known := index[key(b)]
		if !known {
			index[key(b)] = len(out)
			sum := *b.Ledger
			b.Ledger = &sum
			out = append(out, b)
			continue
		}
		out[i].Calls += b.Calls
		add(out[i].Ledger, b.Ledger)
	}
	slices.SortStableFunc(out, func(a, b control.Bucket) int {
		return cmp.Or(cmp.Compare(b.Bucket.Collective, a.Bucket.Collective), cmp.Compare(a.MinBytes, b.MinBytes), cmp.Compare(a.Ranks, b.Ranks))
	})
	return out
}

func add(to, l *control.Ledger) {
	to.Calls += l.Calls
	to.DefaultNs += l.DefaultNs
	to.SavedNs += l.SavedNs
	to.TrialNs += l.TrialNs
	to.Trials += l.Trials
}

// totals counts the sizes that a choice made faster, and those at which a stored choice ran that nothing was measured for.
func totals(rows []control.Bucket) (total control.Ledger, faster, stored int) {
	for _, b := range rows {
		add(&total, b.Ledger)
		switch {
		case b.Choice == "default":
		case b.SpeedUp > 1:
			faster++
		case b.Ledger.Calls == 0:
			stored++
		}
	}
	return total, faster, stored
}

func runTable(w io.Writer, rows []control.Bucket) error {
	shown := slices.DeleteFunc(slices.Clone(rows), untouched)
	if len(shown) > runRows { // those that matter most, in the order that they had
		bySaved := slices.SortedStableFunc(slices.Values(shown), func(a, b control.Bucket) int { return cmp.Compare(net(*b.Ledger), net(*a.Ledger)) })
		least := net(*bySaved[runRows-1].Ledger)
		shown = slices.DeleteFunc(shown, func(b control.Bucket) bool { return net(*b.Ledger) < least })
	}
	fmt.Fprintln(w, prefix+"what was gained over NCCL's default")
	t := columns(w)
	fmt.Fprintln(t, "  collective\tsize\tchoice\tmeasured\t95% interval\tmeasured calls\tsaved\ttrying others cost")
	for _, b := range shown {
		measured, interval := "-", "-"
		switch {
		case b.Choice != "default" && b.SpeedUp != 1:
			measured, interval = fmt.Sprintf("%.2fx", b.SpeedUp), fmt.Sprintf("%.2fx to %.2fx", b.SpeedUpLow, b.SpeedUpHigh)
		case b.Stored > 0:
			measured, interval = fmt.Sprintf("%.2fx", b.Stored), "as stored"
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", b.Collective, size(b), ran(b), measured, interval, b.Ledger.Calls,
			signed(b.Ledger.SavedNs), signed(b.Ledger.TrialNs))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if less := len(rows) - len(shown); less > 0 {
		fmt.Fprintf(w, "  and %s that saved less or nothing\n", units.Count(less, "size"))
	}
	return nil
}

// ran names the kernel as well: with several GPUs in a process LL is another one.
func ran(b control.Bucket) string {
	if b.DeviceLL {
		return b.Choice + " (device)"
	}
	return b.Choice
}

// untouched is a size at which NCCL's default ran and nothing else.
func untouched(b control.Bucket) bool {
	return b.Choice == "default" && b.Ledger.Trials == 0 && b.Ledger.SavedNs == 0
}

// net is what choosing saved, trials included.
func net(l control.Ledger) float64 { return l.SavedNs - l.TrialNs }

func signed(ns float64) string {
	switch {
	case ns < 0:
		return "-" + units.Duration(-ns)
	case ns == 0:
		return "0"
	}
	return units.Duration(ns)
}

func totalLine(l control.Ledger, faster, sizes int, calls uint64) string {
	over := fmt.Sprintf("%d measured of %d calls", l.Calls, max(calls, l.Calls))
	trials := "trying others cost " + units.Duration(l.TrialNs) + " of it"
	switch {
	case l.TrialNs < 0:
		trials = "trying others gained " + units.Duration(-l.TrialNs) + " of it"
	case l.TrialNs == 0:
		trials = "nothing was tried"
	}
	switch {
	case faster == 0 && l.SavedNs == 0:
		return fmt.Sprintf("in total: nothing tried is better than NCCL's default at %s; %s took %s, %s", units.Count(sizes, "size"), over,
			units.Duration(l.DefaultNs-net(l)), trials)
	case net(l) < 0:
		return fmt.Sprintf("in total %.3fx NCCL's default: %s lost on %s in %s, %s; %d of %s faster", l.DefaultNs/(l.DefaultNs-net(l)),
			units.Duration(-net(l)), units.Duration(l.DefaultNs), over, trials, faster, units.Count(sizes, "size"))
	}
	return fmt.Sprintf("in total %.2fx NCCL's default: %s of %s saved in %s, %s; %d of %s faster", l.DefaultNs/(l.DefaultNs-net(l)),
		units.Duration(net(l)), units.Duration(l.DefaultNs), over, trials, faster, units.Count(sizes, "size"))
}
