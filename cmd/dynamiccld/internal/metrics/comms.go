package metrics

import (
	"cmp"
	"math"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/tuner"
)

// maxComms bounds the communicators with series of their own, about 30 each. A process may have hundreds; the busiest
// are shown and the others are counted.
const maxComms = 64

// gain sums what was spent and what NCCL's default would have taken, so that a bucket counts by its time.
type gain struct{ chosenNs, defaultNs float64 }

func (g *gain) add(v tuner.BucketView) {
	for _, a := range v.Choices {
		spent := float64(v.Calls) * a.Estimate.MeanNs
		if a.Action != v.Choice || !(spent > 0) || !(v.SpeedUp > 0) || math.IsInf(spent*v.SpeedUp, 0) {
			continue
		}
		g.chosenNs += spent
		g.defaultNs += spent * v.SpeedUp
	}
}

// sums is what the buckets of one communicator, or of all, come to by collective.
type sums struct {
	seen            [actions.NumCollectives]bool
	gains           [actions.NumCollectives]gain
	counter, signal [actions.NumCollectives]float64 // largest detector statistic
	diagnosed       [agents.DiagnosisUnknown + 1]int
	calls           uint64
}

func (s *sums) add(v tuner.BucketView) {
	c := v.Bucket.Collective
	if c >= actions.NumCollectives {
		return
	}
	s.seen[c] = true
	s.gains[c].add(v)
	s.counter[c] = max(s.counter[c], finite(v.CusumCounter))
	s.signal[c] = max(s.signal[c], finite(v.CusumSignal))
	s.diagnosed[min(v.Diagnosis, agents.DiagnosisUnknown)]++
	s.calls += v.Calls
}

func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

func (ch emit) bucketStates(views []tuner.BucketView) {
	var states [actions.NumCollectives]map[string]int
	var total sums
	for _, v := range views {
		c := v.Bucket.Collective
		if c >= actions.NumCollectives {
			continue
		}
		total.add(v)
		if states[c] == nil {
			states[c] = map[string]int{"exploring": 0, "tuned": 0, "default": 0}
		}
		switch {
		case v.Exploring:
			states[c]["exploring"]++
		case v.Choice == actions.Default:
			states[c]["default"]++
		default:
			states[c]["tuned"]++
		}
	}
	for c := range actions.Collective(actions.NumCollectives) {
		for state, n := range states[c] {
			ch.gauge(buckets, float64(n), c.String(), state)
		}
		if g := total.gains[c]; g.chosenNs > 0 {
			ch.gauge(speedUp, g.defaultNs/g.chosenNs, c.String())
		}
	}
}

func (ch emit) comms(st control.Status, views []tuner.BucketView) {
	byComm := map[string]*sums{}
	for _, v := range views {
		id := control.CommID(v.Comm)
		if byComm[id] == nil {
			byComm[id] = &sums{}
		}
		byComm[id].add(v)
	}
	calls := func(c control.CommStatus) uint64 {
		if s := byComm[c.ID]; s != nil {
			return s.calls
		}
		return 0
	}
	shown := slices.Clone(st.Comms)
	slices.SortFunc(shown, func(a, b control.CommStatus) int {
		return cmp.Or(cmp.Compare(calls(b), calls(a)), cmp.Compare(a.ID, b.ID))
	})
	shown = shown[:min(len(shown), maxComms)]
	ch.gauge(omitted, float64(len(st.Comms)-len(shown)))
	for _, c := range shown {
		ch.gauge(commRanks, float64(c.Ranks), c.ID)
		ch.gauge(commJoined, float64(c.RanksJoined), c.ID)
		ch.gauge(commEpoch, float64(c.Epoch), c.ID)
		ch.gauge(commPlan, float64(c.PlanVersion), c.ID)
		if c.Hosts != "" {
			met := 0.0
			if c.Hosts == "met" {
				met = 1
			}
			ch.gauge(commHosts, met, c.ID)
			ch.gauge(commAgreed, float64(c.PlanAgreed), c.ID)
		}
		if s := byComm[c.ID]; s != nil {
			ch.comm(c.ID, s)
		}
	}
}

func (ch emit) comm(id string, s *sums) {
	for c := range actions.Collective(actions.NumCollectives) {
		if !s.seen[c] {
			continue
		}
		if g := s.gains[c]; g.chosenNs > 0 {
			ch.gauge(commSpeedUp, g.defaultNs/g.chosenNs, id, c.String())
		}
		ch.gauge(commAlarm, s.counter[c], id, c.String(), "counter")
		ch.gauge(commAlarm, s.signal[c], id, c.String(), "signal")
	}
	for d, n := range s.diagnosed {
		ch.gauge(commState, float64(n), id, agents.Diagnosis(d).String())
	}
}
