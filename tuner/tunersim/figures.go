package tunersim

import (
	"fmt"
	"slices"

	"dynamiccl/agents"
	"dynamiccl/state"
)

// FiguresConfig is one experiment: every bucket that all tables measured goes through the tables' conditions in order.
type FiguresConfig struct {
	Tables     []*Table
	PhaseCalls int
	Learners   []string
	Seeds      []uint64
	Noise      Noise
	Timing     Timing
	Guard      agents.GuardConfig
}

// PhaseFigures are one learner's figures in one phase, over buckets and seeds.
type PhaseFigures struct {
	Learner         string
	Phase           int
	Condition       string
	Runs            int
	MedianCalls     float64 // until the base is within 10% of the best and stays there until call 64
	MedianAt64      float64 // cost of the base over the best after 64 calls
	WithinAt64      float64 // part of the runs within 10% by then
	HardCalls       float64 // MedianCalls and
	HardAt64        float64 // MedianAt64 over the buckets whose default costs more than 10% over the best; 0: there are none
	Total           float64 // sum over buckets of cost over the same sum for NCCL's default
	BestTotal       float64 // the least that could be
	WorstBucket     float64 // greatest cost over default of a bucket, mean over seeds
	WorstBucketName string
	Trials          float64 // mean per run
}

// CommonBuckets are the buckets that every table has at its own size.
func CommonBuckets(tables []*Table) []state.Bucket {
	var common []state.Bucket
	for _, b := range tables[0].Buckets() {
		if !slices.ContainsFunc(tables[1:], func(t *Table) bool { return !slices.Contains(t.Buckets(), b) }) {
			common = append(common, b)
		}
	}
	return common
}

// AdaptationFigures runs the experiment. The order of the result is learners, then phases.
func AdaptationFigures(cfg FiguresConfig) ([]PhaseFigures, error) {
	if len(cfg.Tables) == 0 || len(cfg.Seeds) == 0 || cfg.PhaseCalls < adaptCalls {
		return nil, fmt.Errorf("figures need tables, seeds and phases of at least %d calls", adaptCalls)
	}
	phases := make([]Phase, len(cfg.Tables))
	for i, t := range cfg.Tables {
		phases[i] = Phase{t, cfg.PhaseCalls}
	}
	var out []PhaseFigures
	for _, learner := range cfg.Learners {
		sums := make([]gather, len(phases))
		for bi, b := range CommonBuckets(cfg.Tables) {
			for i := range sums {
				sums[i].bucket.total, sums[i].bucket.def = 0, 0
			}
			for _, seed := range cfg.Seeds {
				run := Run{Learner: learner, Bucket: b, Phases: phases, Noise: cfg.Noise, Timing: cfg.Timing, Guard: cfg.Guard,
					Seed: seed<<16 + uint64(bi)}
				results, err := run.Do()
				if err != nil {
					return nil, err
				}
				for i := range results {
					sums[i].add(&results[i])
				}
			}
			for i := range sums {
				sums[i].close(b)
			}
		}
		for i := range sums {
			f := sums[i].figures()
			f.Learner, f.Phase, f.Condition = learner, i, phases[i].Table.Condition
			out = append(out, f)
		}
	}
	return out, nil
}

// gather sums up one learner's runs of one phase.
type gather struct {
	calls, at64         []float64
	hardCalls, hardAt64 []float64
	total, def, best    float64
	within, trials      int
	bucket              struct{ total, def float64 }
	worst               float64
	worstBucket         state.Bucket
}

func (g *gather) add(r *PhaseResult) {
	g.calls = append(g.calls, float64(r.CallsWithin))
	g.at64 = append(g.at64, r.At64)
	g.total, g.def, g.best = g.total+r.TotalNs, g.def+r.DefaultNs, g.best+r.BestNs
	g.bucket.total, g.bucket.def = g.bucket.total+r.TotalNs, g.bucket.def+r.DefaultNs
	g.trials += r.Trials
	if r.DefaultNs > within*r.BestNs {
		g.hardCalls, g.hardAt64 = append(g.hardCalls, float64(r.CallsWithin)), append(g.hardAt64, r.At64)
	}
	if r.At64 <= within {
		g.within++
	}
}

func (g *gather) close(b state.Bucket) {
	if r := g.bucket.total / g.bucket.def; r > g.worst {
		g.worst, g.worstBucket = r, b
	}
}

func (g *gather) figures() PhaseFigures {
	n := float64(len(g.calls))
	return PhaseFigures{Runs: len(g.calls), MedianCalls: median(g.calls), MedianAt64: median(g.at64), HardCalls: median(g.hardCalls), HardAt64: median(g.hardAt64),
		WithinAt64: float64(g.within) / n, Total: g.total / g.def, BestTotal: g.best / g.def,
		WorstBucket: g.worst, WorstBucketName: g.worstBucket.String(), Trials: float64(g.trials) / n}
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	n := len(xs)
	if n == 0 {
		return 0
	}
	return (xs[(n-1)/2] + xs[n/2]) / 2
}
