package tunersim

import (
	"math"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// FitReport says how well a machine explains a table. Errors are of the logarithm: 0.1 is about 10%.
type FitReport struct {
	Rows         int
	RMSError     float64
	RobustError  float64 // mean absolute error, which single bad rows move little
	RepeatError  float64 // how far rows lie apart that are one choice, more channels than the communicator has; 0: there are none
	DefaultError float64 // root mean square error of the default's cost
	Collectives  map[actions.Collective]float64
	// BestWithin is the part of the buckets where the choice that the model thinks best is, by the table, within 10% of
	// the measured best (bestWithin); MeanLoss is how much more it costs on average.
	BestWithin  float64
	MeanLoss    float64
	WorstBucket state.Bucket // where the model's best loses most,
	WorstLoss   float64      // and how much
	MaxChannels float64
}

const bestWithin = 1.1

func (m *Machine) report(c *Condition, t *Table, rows []fitRow) FitReport {
	f := FitReport{Rows: len(rows), Collectives: map[actions.Collective]float64{}, MaxChannels: m.MaxChannels}
	if len(rows) == 0 {
		return f
	}
	out := make([]float64, len(rows))
	m.residuals(c, rows, out, allRows)
	count := map[actions.Collective]float64{}
	for i, e := range out {
		f.RMSError += e * e
		f.RobustError += math.Abs(e)
		f.Collectives[rows[i].collective] += e * e
		count[rows[i].collective]++
	}
	n := float64(len(rows))
	f.RMSError, f.RobustError, f.DefaultError = math.Sqrt(f.RMSError/n), f.RobustError/n, math.Sqrt(m.defaultError(c, t))
	for c, sum := range f.Collectives {
		f.Collectives[c] = math.Sqrt(sum / count[c])
	}
	f.RepeatError = repeatError(rows, m.MaxChannels)
	for _, p := range t.points {
		least, measured := math.Inf(1), p.defaultNs
		for i := range rows {
			if r := &rows[i]; r.collective == p.collective && r.bytes == p.bytes {
				if model := out[i] + r.log; model < least {
					least, measured = model, math.Exp(r.log)
				}
			}
		}
		loss := measured/p.bestNs - 1
		f.MeanLoss += loss / float64(len(t.points))
		if measured <= bestWithin*p.bestNs {
			f.BestWithin += 1 / float64(len(t.points))
		}
		if loss >= f.WorstLoss {
			f.WorstLoss = loss
			f.WorstBucket, _ = state.BucketOf(p.collective, p.bytes)
		}
	}
	return f
}

// repeatError is the standard deviation of the logarithm among rows that ask for at least maxChannels and are alike in the
// rest: no model can come nearer than that, by the median of a sweep.
func repeatError(rows []fitRow, maxChannels float64) float64 {
	type choice struct {
		collective actions.Collective
		bytes      uint64
		a          actions.Action
	}
	sums := map[choice][3]float64{}
	var order []choice // a map's would give other last digits each time
	for _, r := range rows {
		if r.a.Path == actions.PathCollective && float64(r.a.Channels) >= maxChannels {
			k := choice{r.collective, r.bytes, r.a}
			k.a.Channels = 0
			s, ok := sums[k]
			if !ok {
				order = append(order, k)
			}
			sums[k] = [3]float64{s[0] + 1, s[1] + r.log, s[2] + r.log*r.log}
		}
	}
	spread, free := 0.0, 0.0
	for _, k := range order {
		s := sums[k]
		spread += max(0, s[2]-s[1]*s[1]/s[0])
		free += s[0] - 1
	}
	if free == 0 {
		return 0
	}
	return math.Sqrt(spread / free)
}

// Statistics are what one table is compared with others by.
type Statistics struct {
	Name  string
	Value float64
}

// Summary gives the statistics of a table that it has the rows for: how far NCCL's default is from the best (quantiles
// over buckets), what trees and LL gain, what channels gain, and what a small call costs.
func Summary(t *Table) []Statistics {
	var s []Statistics
	add := func(name string, v float64) {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			s = append(s, Statistics{name, v})
		}
	}
	var ratios []float64
	for _, p := range t.points {
		ratios = append(ratios, p.defaultNs/p.bestNs)
	}
	if len(ratios) == 0 {
		return nil
	}
	slices.Sort(ratios)
	for _, q := range []struct {
		name string
		at   float64
	}{{"default over best, median", 0.5}, {"default over best, 90%", 0.9}} {
		add(q.name, ratios[int(q.at*float64(len(ratios)-1)+0.5)])
	}
	least := func(bytes uint64, alg actions.Algorithm, proto actions.Protocol, anyProto bool) float64 {
		v := math.Inf(1)
		p := t.at(actions.AllReduce, bytes)
		if p == nil || p.bytes != bytes {
			return math.NaN()
		}
		for _, a := range p.order {
			if a.Path == actions.PathCollective && a.Algorithm == alg && (anyProto || a.Protocol == proto) {
				v = min(v, p.costNs[a])
			}
		}
		return v
	}
	for _, bytes := range []uint64{1 << 10, 1 << 20} {
		name := state.FormatBytes(bytes)
		add("Tree over Ring, "+name, least(bytes, actions.Tree, 0, true)/least(bytes, actions.Ring, 0, true))
		add("LL over Simple, "+name, least(bytes, actions.Ring, actions.LL, false)/least(bytes, actions.Ring, actions.Simple, false))
		add("LL128 over Simple, "+name, least(bytes, actions.Ring, actions.LL128, false)/least(bytes, actions.Ring, actions.Simple, false))
	}
	if p := t.at(actions.AllReduce, 1<<20); p != nil && p.bytes == 1<<20 {
		ring := func(ch uint8) float64 {
			ns, ok := p.costNs[actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: ch}]
			if !ok {
				return math.NaN()
			}
			return ns
		}
		add("32 channels over 1, Ring/Simple, 1 MiB", ring(32)/ring(1))
	}
	add("least AllReduce of 1 KiB, us", min(least(1<<10, actions.Tree, 0, true), least(1<<10, actions.Ring, 0, true))/1000)
	return s
}
