package tunersim

import (
	"math"
	"slices"
)

// Score is one row of a comparison: a learner in a scenario, over all buckets or of one. Costs are the tables', without
// noise; calls are those of one bucket, in a change of conditions counted from the change. "Running choice" at a call
// is the median cost of it and the seven calls after it: single trials do not move it.
type Score struct {
	Trace     string `json:"trace"`
	Condition string `json:"condition"`
	Learner   string `json:"learner"`
	Seed      uint64 `json:"seed"`
	Calls     int    `json:"calls"`

	// Of a row of one bucket only.
	Collective string `json:"collective,omitempty"`
	Bytes      uint64 `json:"bytes,omitempty"`

	// Sum of costs over the same sum for the best action; over buckets: the mean.
	CostOverOracle float64 `json:"cost_over_oracle"`
	// Mean cost of the last 8 calls over the best action's; over buckets: the mean.
	FinalOverOracle float64 `json:"final_over_oracle"`
	// Sum of costs over the same sum for NCCL's default; over buckets: the mean.
	CostOverDefault float64 `json:"cost_over_default"`
	// Largest sum of 100 consecutive calls of a bucket over 100 calls of the default; of a shorter run the whole of it.
	// Over buckets: the largest.
	WorstWindow100 float64 `json:"worst_window100_over_default"`
	// Calls until a call within 5% of the best action from which on at least 90% of all calls, and the running choice,
	// are within 5%. Where that never happens, or in the last 7 calls only: all calls. Over buckets: the mean.
	CallsToWithin5 float64 `json:"calls_to_within_5pct"`

	Buckets              int     `json:"buckets"`
	CallsToWithin5Median float64 `json:"calls_to_within_5pct_median"`
	Reached5             float64 `json:"reached_5pct_share"`       // part of the buckets
	SpeedAt32            float64 `json:"speed_at_32"`              // best action's cost over that of the running choice at call 32; mean
	SpeedAt32Worst       float64 `json:"speed_at_32_worst"`        // least of a bucket
	Within3At32          float64 `json:"share_97pct_speed_at_32"`  // part of the buckets with at least 97% of the best speed
	Within3AtEnd         float64 `json:"share_97pct_speed_at_end"` // likewise in the last 8 calls
	Regret64             float64 `json:"regret_64"`                // cost beyond the best action's, in calls of the best action, after 64 calls; mean
	Regret               float64 `json:"regret"`                   // after all calls
	CostOverOracleP90    float64 `json:"cost_over_oracle_p90"`     // over buckets
	FinalOverOracleP90   float64 `json:"final_over_oracle_p90"`
	CostOverDefaultMax   float64 `json:"cost_over_default_max"`
}

const (
	near5       = 1.05
	near3       = 1 / 0.97
	stayShare   = 0.9
	runningLast = 8
	windowCalls = 100
	earlyCall   = 32
	regretCalls = 64
)

// Scores gives the row over all buckets and one for each.
func (p *Played) Scores() (all Score, each []Score) {
	for i := range p.costNs {
		each = append(each, p.bucket(i))
	}
	all = p.row()
	all.Calls, all.Buckets = len(p.costNs[0]), len(each)
	column := func(of func(*Score) float64) []float64 {
		xs := make([]float64, len(each))
		for i := range each {
			xs[i] = of(&each[i])
		}
		return xs
	}
	for _, m := range []struct {
		to   *float64
		over func([]float64) float64
		of   func(*Score) float64
	}{
		{&all.CostOverOracle, mean, func(s *Score) float64 { return s.CostOverOracle }},
		{&all.CostOverOracleP90, p90, func(s *Score) float64 { return s.CostOverOracle }},
		{&all.FinalOverOracle, mean, func(s *Score) float64 { return s.FinalOverOracle }},
		{&all.FinalOverOracleP90, p90, func(s *Score) float64 { return s.FinalOverOracle }},
		{&all.CostOverDefault, mean, func(s *Score) float64 { return s.CostOverDefault }},
		{&all.CostOverDefaultMax, slices.Max[[]float64], func(s *Score) float64 { return s.CostOverDefault }},
		{&all.WorstWindow100, slices.Max[[]float64], func(s *Score) float64 { return s.WorstWindow100 }},
		{&all.CallsToWithin5, mean, func(s *Score) float64 { return s.CallsToWithin5 }},
		{&all.CallsToWithin5Median, median, func(s *Score) float64 { return s.CallsToWithin5 }},
		{&all.Reached5, mean, func(s *Score) float64 { return s.Reached5 }},
		{&all.SpeedAt32, mean, func(s *Score) float64 { return s.SpeedAt32 }},
		{&all.SpeedAt32Worst, slices.Min[[]float64], func(s *Score) float64 { return s.SpeedAt32 }},
		{&all.Within3At32, mean, func(s *Score) float64 { return s.Within3At32 }},
		{&all.Within3AtEnd, mean, func(s *Score) float64 { return s.Within3AtEnd }},
		{&all.Regret64, mean, func(s *Score) float64 { return s.Regret64 }},
		{&all.Regret, mean, func(s *Score) float64 { return s.Regret }},
	} {
		*m.to = m.over(column(m.of))
	}
	return all, each
}

func (p *Played) row() Score {
	return Score{Trace: p.scenario.Trace, Condition: p.scenario.Condition, Learner: p.learner, Seed: p.seed}
}

// bests gives the costs of the best action and of the default in the condition that counts.
func (p *Played) bests(i int) (best, def float64) {
	k := &p.scenario.buckets[i]
	last := p.scenario.conditions - 1
	return k.costNs[last][k.best[last]], k.costNs[last][0]
}

func (p *Played) bucket(i int) Score {
	s := p.row()
	k, costs := &p.scenario.buckets[i], p.costNs[i]
	best, def := p.bests(i)
	n := len(costs)
	s.Calls, s.Buckets, s.Collective, s.Bytes = n, 1, k.Collective.String(), k.bytes
	overBest, overDefault := over(costs, best), over(costs, def)
	s.CostOverOracle, s.CostOverDefault = mean(overBest), mean(overDefault)
	s.FinalOverOracle = mean(overBest[max(0, n-runningLast):])
	s.CostOverOracleP90, s.FinalOverOracleP90, s.CostOverDefaultMax = s.CostOverOracle, s.FinalOverOracle, s.CostOverDefault
	s.WorstWindow100 = worstWindow(overDefault, min(n, windowCalls))
	reached := callsToWithin(overBest, near5)
	s.CallsToWithin5, s.CallsToWithin5Median, s.Reached5 = float64(reached), float64(reached), truth(reached < n)
	early := running(overBest, earlyCall)
	s.SpeedAt32, s.SpeedAt32Worst, s.Within3At32 = 1/early, 1/early, truth(early <= near3)
	s.Within3AtEnd = truth(running(overBest, n) <= near3)
	s.Regret64, s.Regret = regret(overBest[:min(n, regretCalls)]), regret(overBest)
	return s
}

// Curve is the regret after each call, in calls of the best action, mean over buckets.
func (p *Played) Curve() []float64 {
	curve := make([]float64, len(p.costNs[0]))
	for i, costs := range p.costNs {
		best, _ := p.bests(i)
		regret := 0.0
		for t, c := range costs {
			regret += c/best - 1
			curve[t] += regret / float64(len(p.costNs))
		}
	}
	return curve
}

// running is the running choice at a call; of the last 8 calls where there are no 8 left.
func running(costs []float64, call int) float64 {
	from := max(0, min(call, len(costs)-runningLast))
	return median(slices.Clone(costs[from:min(from+runningLast, len(costs))]))
}

// callsToWithin is how many calls came before the choice was, and stayed, within the bound; all when it never was.
func callsToWithin(costs []float64, bound float64) int {
	within, reached := 0, len(costs)
	for t := len(costs) - 1; t >= 0; t-- {
		if costs[t] > bound {
			continue
		}
		within++
		if left := len(costs) - t; left >= runningLast && float64(within) >= stayShare*float64(left) && running(costs, t) <= bound {
			reached = t
		}
	}
	return reached
}

// worstWindow is the greatest mean of so many consecutive costs.
func worstWindow(costs []float64, calls int) float64 {
	window := sum(costs[:calls])
	worst := window
	for t := calls; t < len(costs); t++ {
		window += costs[t] - costs[t-calls]
		worst = max(worst, window)
	}
	return worst / float64(calls)
}

func truth(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

func sum(xs []float64) float64 {
	total := 0.0
	for _, x := range xs {
		total += x
	}
	return total
}

// over gives costs as multiples of one.
func over(costs []float64, of float64) []float64 {
	xs := make([]float64, len(costs))
	for i, c := range costs {
		xs[i] = c / of
	}
	return xs
}

func regret(overBest []float64) float64 { return sum(overBest) - float64(len(overBest)) }

func mean(xs []float64) float64 { return sum(xs) / float64(len(xs)) }

// p90 is the value that nine of ten do not exceed.
func p90(xs []float64) float64 {
	slices.Sort(xs)
	return xs[max(0, int(math.Ceil(0.9*float64(len(xs))))-1)]
}
