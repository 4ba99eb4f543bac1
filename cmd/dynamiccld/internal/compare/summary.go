package compare

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"dynamiccl/tuner/tunersim"
)

// Figure is a mean over seeds with the half width of its 95% interval; 0 where one seed tells nothing of it.
type Figure struct{ Mean, Half float64 }

// Line is one learner in one scenario over all seeds.
type Line struct {
	Learner                                                                                  string
	Knows                                                                                    bool // the table: no competitor
	Best                                                                                     bool // least cost over oracle of those that do not know the table
	CostOverOracle, FinalOverOracle, CostOverDefault, Worst, Calls5, Regret64, Within3, At32 Figure
	Curve                                                                                    []float64 // mean over seeds
}

// Block is one scenario.
type Block struct {
	Trace, Condition      string
	Buckets, Calls, Seeds int
	Lines                 []Line // the cheapest first
}

// Summary groups results by scenario and learner.
func Summary(results []Result) []Block {
	var blocks []Block
	for from := 0; from < len(results); {
		to, head := from, results[from].All
		for to < len(results) && results[to].All.Trace == head.Trace && results[to].All.Condition == head.Condition {
			to++
		}
		b := Block{Trace: head.Trace, Condition: head.Condition, Buckets: head.Buckets, Calls: head.Calls}
		for from < to {
			end := from
			for end < to && results[end].All.Learner == results[from].All.Learner {
				end++
			}
			b.Seeds = end - from
			b.Lines = append(b.Lines, lineOf(results[from:end]))
			from = end
		}
		b.order()
		blocks = append(blocks, b)
	}
	return blocks
}

func (b *Block) order() {
	slices.SortStableFunc(b.Lines, func(a, c Line) int { return cmp.Compare(a.CostOverOracle.Mean, c.CostOverOracle.Mean) })
	for i := range b.Lines {
		if !b.Lines[i].Knows {
			b.Lines[i].Best = true
			return
		}
	}
}

func lineOf(runs []Result) Line {
	figure := func(of func(*tunersim.Score) float64) Figure {
		xs := make([]float64, len(runs))
		for i := range runs {
			xs[i] = of(&runs[i].All)
		}
		return figureOf(xs)
	}
	l := Line{
		Learner: runs[0].All.Learner, Knows: slices.Contains(tunersim.KnowingLearners(), runs[0].All.Learner),
		CostOverOracle:  figure(func(s *tunersim.Score) float64 { return s.CostOverOracle }),
		FinalOverOracle: figure(func(s *tunersim.Score) float64 { return s.FinalOverOracle }),
		CostOverDefault: figure(func(s *tunersim.Score) float64 { return s.CostOverDefault }),
		Worst:           figure(func(s *tunersim.Score) float64 { return s.WorstWindow100 }),
		Calls5:          figure(func(s *tunersim.Score) float64 { return s.CallsToWithin5 }),
		Regret64:        figure(func(s *tunersim.Score) float64 { return s.Regret64 }),
		At32:            figure(func(s *tunersim.Score) float64 { return s.SpeedAt32 }),
		Within3:         figure(func(s *tunersim.Score) float64 { return s.Within3At32 }),
		Curve:           make([]float64, len(runs[0].Curve)),
	}
	for _, r := range runs {
		for t, x := range r.Curve {
			l.Curve[t] += x / float64(len(runs))
		}
	}
	return l
}

// figureOf gives Student's interval.
func figureOf(xs []float64) Figure {
	n := float64(len(xs))
	if len(xs) < 2 {
		return Figure{Mean: xs[0]}
	}
	mean, sd := stat.MeanStdDev(xs, nil)
	return Figure{mean, distuv.StudentsT{Mu: 0, Sigma: 1, Nu: n - 1}.Quantile(0.975) * sd / math.Sqrt(n)}
}
