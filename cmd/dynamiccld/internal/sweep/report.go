package sweep

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"text/tabwriter"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/state"
)

// bestOf is what a bucket's rows say.
type bestOf struct {
	collective string
	bytes      uint64
	defaults   []float64
	choice     string
	us         float64 // 0: nothing was forced
	forced     int     // rows, of which it is the best
}

// scatter is the standard deviation of a row (log cost) by how NCCL's default's rows of one size differ, and what it rests on; 0: not known.
func scatter(all []*bestOf) (sd float64, freedom int) {
	sum := 0.0
	for _, b := range all {
		if own := len(b.defaults) - 1; own > 0 {
			sum += stat.Variance(b.defaults, nil) * float64(own)
			freedom += own
		}
	}
	if freedom == 0 {
		return 0, 0
	}
	return math.Sqrt(sum / float64(freedom)), freedom
}

// byChance is the gain (log cost) that the best of these choices shows in one size of twenty although none is better than NCCL's default.
func (b *bestOf) byChance(sd float64, freedom int) float64 {
	if freedom == 0 || b.forced == 0 {
		return 0
	}
	one := math.Pow(0.95, 1/float64(b.forced))
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(freedom)}.Quantile(one) * sd * math.Sqrt(1+1/float64(len(b.defaults)))
}

// report says what was measured and what it shows.
func (r *runner) report() error {
	keys, us, err := rows(r.journal.points)
	if err != nil {
		return err
	}
	var all []*bestOf
	for _, k := range keys {
		// A sweep that went on with more choices has some of a size's rows behind other sizes'.
		i := slices.IndexFunc(all, func(b *bestOf) bool { return b.collective == k.collective && b.bytes == k.bytes })
		if i < 0 {
			i, all = len(all), append(all, &bestOf{collective: k.collective, bytes: k.bytes})
		}
		b, cost := all[i], forced.Median(us[k])
		if k.choice[0] == actions.PathDefault.String() {
			b.defaults = append(b.defaults, math.Log(cost))
			continue
		}
		if b.forced++; b.us == 0 || cost < b.us {
			b.us, b.choice = cost, choiceName(k.choice)
		}
	}
	sd, freedom := scatter(all)
	doubtful := false
	w := tabwriter.NewWriter(r.o.Report, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "collective\tsize\tdefault us\tbest choice\tus\tgain")
	for _, b := range all {
		if len(b.defaults) == 0 {
			continue
		}
		sum := 0.0
		for _, v := range b.defaults {
			sum += v
		}
		byDefault := math.Exp(sum / float64(len(b.defaults)))
		choice, best, gain := "-", "-", "-"
		if b.us > 0 {
			choice, best, gain = b.choice, fmt.Sprintf("%.2f", b.us), fmt.Sprintf("%.2fx", byDefault/b.us)
			if log := math.Log(byDefault / b.us); log > 0 && log <= b.byChance(sd, freedom) {
				gain, doubtful = gain+" ?", true
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%.2f\t%s\t%s\t%s\n", b.collective, state.FormatBytes(b.bytes), byDefault, choice, best, gain)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if doubtful {
		fmt.Fprintln(r.o.Report, "? no gain beyond doubt: by how NCCL's default's own points scatter the best of as many choices may show it though none is better; more --rounds narrow it")
	}
	outcomes := map[string]int{}
	for _, p := range r.journal.points {
		outcomes[p.Outcome]++
	}
	for _, text := range r.unmatched() {
		fmt.Fprintln(r.o.Progress, text)
	}
	out := ""
	for _, o := range []string{OutcomeOverruled, OutcomeUnseen, OutcomeWrong, OutcomeHung, OutcomeFailed} {
		if outcomes[o] > 0 {
			out += fmt.Sprintf("%s%d %s", cmp.Or(map[bool]string{true: ", "}[out != ""]), outcomes[o], o)
		}
	}
	if out != "" {
		out = "; no row for " + out + ", see " + r.paths.journal
	}
	_, err = fmt.Fprintf(r.o.Report, "%d rows in %s, the machine in %s%s\n", len(keys), r.paths.table, r.paths.description, out)
	return err
}
