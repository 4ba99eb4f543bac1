package tuner

// Totals only grow. Their JSON keys are an interface: add, never rename.
type Totals struct {
	Samples    uint64    `json:"samples"`    // taken in
	Groups     uint64    `json:"groups"`     // group calls observed
	Incomplete uint64    `json:"incomplete"` // group calls given up because a rank is missing
	Unclocked  uint64    `json:"unclocked"`  // group calls of trees and one-way collectives that came before the GPUs' clocks were known
	Incoherent uint64    `json:"incoherent"` // group calls whose instants contradict each other
	Late       uint64    `json:"late"`       // samples that fit no open group call
	Elsewhere  uint64    `json:"elsewhere"`  // samples of ranks on other hosts
	Disagreed  uint64    `json:"disagreed"`  // group calls whose ranks ran different things: a bug or a foreign plugin
	Overruled  uint64    `json:"overruled"`  // group calls that ran another algorithm, protocol or kernel than asked for
	Ran        RanTotals `json:"ran"`        // what became of all that was asked for
	Cold       uint64    `json:"cold"`       // group calls that were a kernel's first ones, or had it warm up
	Waited     uint64    `json:"waited"`     // short group calls that a GPU waited for, where it waits for few (tuner/idle.go)
	OverGIN    uint64    `json:"over_gin"`   // group calls that our kernels ran over GIN
	Slow       uint64    `json:"slow"`       // group calls without times: a rank's host took too long to enqueue its call
	Unknown    uint64    `json:"unknown"`    // samples of communicators or buckets that are not known
	Plans      uint64    `json:"plans"`
	Agreed     uint64    `json:"plans_agreed"` // of Plans, those that ranks on several hosts were seen to have in force
	Alarms     uint64    `json:"alarms"`
	Audits     uint64    `json:"audits"` // of a communicator's steps that have come to something
	Vetoes     uint64    `json:"vetoes"` // of these, those that put NCCL's default in force

	Replays ReplayTotals `json:"replays"` // of our kernels in CUDA graphs, which are no calls: nowhere else in here
	Trips   TripTotals   `json:"trips"`   // of puts over GIN, likewise
}

func (t *Totals) addJoiner(j *joiner) {
	t.Incomplete += j.incomplete
	t.Unclocked += j.unclocked
	t.Incoherent += j.incoherent
	t.Late += j.late
	t.Elsewhere += j.told
	t.Disagreed += j.disagreed
}

// Totals counts what was taken in and decided since New.
func (c *Core) Totals() Totals {
	t := c.totals
	t.Overruled = t.Ran.Overruled
	t.Incomplete, t.Late, t.Disagreed, t.Elsewhere = c.gone.Incomplete, c.gone.Late, c.gone.Disagreed, c.gone.Elsewhere
	t.Unclocked, t.Incoherent = c.gone.Unclocked, c.gone.Incoherent
	for _, m := range c.comms {
		t.addJoiner(&m.joiner)
	}
	return t
}
