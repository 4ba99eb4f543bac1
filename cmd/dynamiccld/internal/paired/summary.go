package paired

import (
	"context"
	"math"

	"dynamiccl/cmd/dynamiccld/internal/forced"
)

// finish writes down what a phase gave, also one that was cut short.
func (r *runner) finish(ctx context.Context, index int, p Phase, from start, seconds float64, all []*series) error {
	measured := make([]*series, 0, len(all))
	for _, s := range all {
		if len(s.at) > 0 {
			measured = append(measured, s)
		}
	}
	if len(measured) == 0 {
		return nil
	}
	names := make([]string, len(r.arms))
	for i, a := range r.arms {
		names[i] = a.Name
	}
	step := every(len(measured[0].at), len(measured), len(names))
	for _, s := range measured {
		line := Rounds{Kind: kindRounds, Phase: index, Collective: s.Collective, Bytes: s.Bytes, Every: step, AtS: thin(s.at, step),
			Us: map[string][]float64{}, MeanUs: map[string][]float64{}}
		for i, name := range names {
			line.Us[name], line.MeanUs[name] = thin(s.us[i], step), thin(s.mean[i], step)
		}
		if err := r.journal.add(line); err != nil {
			return err
		}
	}
	summary := summarize(names, seconds, measured)
	summary.Phase, summary.Load = index, p.Name()
	for i, a := range r.arms {
		if c := a.choices(ctx); c != nil {
			summary.Choices[a.Name] = c
		}
		if h := a.heard(ctx, from.counted[i], from.at); h != nil {
			summary.Detector[a.Name] = h
		}
	}
	r.summary = append(r.summary, summary)
	return r.journal.add(summary)
}

// summarize gives what the rounds of a phase show. Every series has a round at least.
func summarize(arms []string, seconds float64, all []*series) PhaseSummary {
	p := PhaseSummary{Kind: kindPhase, Seconds: digits(seconds, 4), Rounds: math.MaxInt, Geomean: map[string]Ratio{},
		Collective: map[string]map[string]Ratio{}, Whole: map[string]float64{}, Worst: map[string]PointName{}, Adapt: map[string]Adapted{},
		Choices: map[string][]Choice{}, Detector: map[string]*Heard{}}
	by := map[string][]*series{}
	for _, s := range all {
		p.Rounds = min(p.Rounds, len(s.at))
		by[s.Collective] = append(by[s.Collective], s)
		p.Points = append(p.Points, summarizePoint(arms, seconds, s))
	}
	for arm, name := range arms {
		if arm == 0 {
			continue
		}
		at, means := byRound(all, arm)
		p.Geomean[name] = ratioOf(means[from(at, seconds/2):])
		p.Adapt[name] = adapted(at, means, seconds)
		for c, of := range by {
			if p.Collective[c] == nil {
				p.Collective[c] = map[string]Ratio{}
			}
			at, means := byRound(of, arm)
			p.Collective[c][name] = ratioOf(means[from(at, seconds/2):])
		}
		var wholes []float64
		for _, point := range p.Points {
			wholes = append(wholes, point.Whole[name])
		}
		p.Whole[name] = digits(geomean(wholes), figures)
		w := p.Points[worst(p.Points, name)]
		p.Worst[name] = PointName{w.Collective, w.Bytes, w.Ratio[name].Median}
	}
	return p
}

func summarizePoint(arms []string, seconds float64, s *series) PointSummary {
	begin := from(s.at, seconds/2)
	p := PointSummary{Collective: s.Collective, Bytes: s.Bytes, Rounds: len(s.at) - begin, Us: map[string]float64{}, Ratio: map[string]Ratio{},
		Whole: map[string]float64{}}
	for arm, name := range arms {
		p.Us[name] = digits(forced.Median(s.us[arm][begin:]), figures)
		if arm > 0 {
			p.Ratio[name] = ratioOf(ratios(s.us, arm)[begin:])
			p.Whole[name] = whole(s.mean, arm)
		}
	}
	return p
}
