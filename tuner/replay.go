package tuner

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// maxReplayed bounds what is kept of a communicator's graphs, far beyond what a program captures at once. In months it may capture more:
// graphs of which nothing was heard for goneReplayedNs make room.
const (
	maxReplayed    = 512
	goneReplayedNs = state.Ns(3600e9)
)

const (
	levelKept    = 128  // replays that a level's median rests on
	levelFresh   = 64   // replays behind an alarm that are compared with those: 1% of standard error at 5% noise
	levelMoved   = 1.03 // the ratio of medians from which that is a change, if
	levelMovedNs = 50   // it is that much, too: less is no reason to calibrate and capture anew
)

// ReplayTotals counts what CUDA graphs' replays told. They only grow. Their JSON keys are an interface: add, never rename.
type ReplayTotals struct {
	Samples    uint64 `json:"samples"`    // taken in
	Joined     uint64 `json:"joined"`     // replays that all ranks told of
	Incomplete uint64 `json:"incomplete"` // given up because a rank is missing
	Late       uint64 `json:"late"`       // samples that fit no open replay: too late, repeated or senseless
	Disagreed  uint64 `json:"disagreed"`  // replays whose ranks differ in what was captured or ran: a bug
	Unknown    uint64 `json:"unknown"`    // samples of communicators or buckets that are not known
	Unkept     uint64 `json:"unkept"`     // joined ones of more choices than are kept
	Alarms     uint64 `json:"alarms"`     // of the detector
	Changes    uint64 `json:"changes"`    // of which the cost then stayed away from what it was

	By [actions.NumCollectives]ReplaySums `json:"-"`
}

// ReplaySums is what the joined replays of a collective come to.
type ReplaySums struct{ Replays, SignalNs, CounterNs, Changes uint64 }

// ReplayView is what people see of a choice that CUDA graphs hold: what our kernel took there when it ran again.
type ReplayView struct {
	Comm            CommID
	Shape           state.Shape
	Bucket          state.Bucket
	Bytes           uint64
	Choice          actions.Action // that was captured
	Replays         uint64         // seen: about one in 64 of those that ran
	FirstNs, LastNs state.Ns       // when ranks told of them
	Signal, Counter ReplayCost     // since the last change; Counter is zero where it was not measured
	Changes         uint64
	Changed         ReplayChange // the last time; meaning only while Changes > 0
}

// ReplayCost is the centre of what replays took.
type ReplayCost struct{ MedianNs, MeanNs float64 }

// ReplayChange is a change of cost that stayed, between medians.
type ReplayChange struct {
	AtNs            state.Ns
	Signal, Counter agents.Change
}

// replays is what one communicator's graphs cost.
type replays struct {
	joiner  replayJoiner
	noise   agents.FabricNoise // of its own: calls' detectors must not learn of what graphs do
	choices map[replayKey]*replayed
	fullTo  state.Ns // no choice can be gone before
	rng     *rand.Rand
}

// replayKey says which replays are expected to take the same. A bucket's sizes differ by up to two, and how often a program
// replays which of them changes with its load: that is no change of their cost, so each size stands by itself.
type replayKey struct {
	bucket state.Bucket
	bytes  uint64
	action actions.Action
}

// replayed is one choice in graphs.
type replayed struct {
	replayKey
	detector        *agents.Detector
	seen            uint64
	firstNs, lastNs state.Ns
	level           costLevel
	fresh           *costLevel // since an alarm that is not judged yet
	alarmNs         state.Ns
	changes         uint64
	changed         ReplayChange
}

// costLevel is what replays took in one condition. It keeps a sample of them in which each has the same chance to be.
type costLevel struct {
	n, counted          uint64 // replays, and those with a counter
	signalNs, counterNs float64
	kept                [levelKept]replayCost
}

func (l *costLevel) add(c replayCost, rng *rand.Rand) {
	if l.n++; l.n <= levelKept {
		l.kept[l.n-1] = c
	} else if i := rng.Uint64N(l.n); i < levelKept { // Vitter, Random sampling with a reservoir, ACM TOMS 11 (1985), algorithm R
		l.kept[i] = c
	}
	l.signalNs += float64(c.signalNs)
	if c.counterNs > 0 {
		l.counted++
		l.counterNs += float64(c.counterNs)
	}
}

func (l *costLevel) costs() (signal, counter ReplayCost) {
	var signals, counters []float64
	for _, c := range l.kept[:min(l.n, levelKept)] {
		signals = append(signals, float64(c.signalNs))
		if c.counterNs > 0 {
			counters = append(counters, float64(c.counterNs))
		}
	}
	signal, counter = ReplayCost{MedianNs: middleOf(signals)}, ReplayCost{MedianNs: middleOf(counters)}
	if l.n > 0 {
		signal.MeanNs = l.signalNs / float64(l.n)
	}
	if l.counted > 0 {
		counter.MeanNs = l.counterNs / float64(l.counted)
	}
	return signal, counter
}

// middleOf is the median, 0 of nothing. It sorts v.
func middleOf(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// observe takes in one replay and reports an alarm of the detector, and a change that it led to.
func (p *replayed) observe(nowNs state.Ns, c replayCost, rng *rand.Rand) (alarm, changed bool) {
	if p.seen++; p.seen == 1 {
		p.firstNs = nowNs
	}
	p.lastNs = nowNs
	alarm = p.detector.Observe(state.Observation{AtNs: nowNs, Action: p.action, Bytes: p.bytes, SignalNs: c.signalNs, CounterNs: c.counterNs}).Raised
	if alarm && p.fresh == nil {
		p.fresh, p.alarmNs = &costLevel{}, nowNs
	}
	if p.fresh == nil {
		p.level.add(c, rng)
		return alarm, false
	}
	p.fresh.add(c, rng)
	return alarm, p.fresh.n == levelFresh && p.judge(rng)
}

// judge compares what came since the alarm with what was before it. Replays come by the hundred a second, so even one false
// alarm in 100,000 would have every choice changed within the hour: what comes back to where it was is none.
func (p *replayed) judge(rng *rand.Rand) bool {
	fresh := p.fresh
	p.fresh = nil
	signal, counter := p.level.costs()
	signalNow, counterNow := fresh.costs()
	change := ReplayChange{AtNs: p.alarmNs, Signal: agents.Change{BeforeNs: signal.MedianNs, AfterNs: signalNow.MedianNs}}
	if counter.MedianNs > 0 && counterNow.MedianNs > 0 {
		change.Counter = agents.Change{BeforeNs: counter.MedianNs, AfterNs: counterNow.MedianNs}
	}
	if !moved(change.Signal) && !moved(change.Counter) {
		for _, c := range fresh.kept[:fresh.n] {
			p.level.add(c, rng)
		}
		return false
	}
	p.level, p.changed = *fresh, change
	p.changes++
	return true
}

func moved(c agents.Change) bool {
	r := c.Ratio()
	return (r >= levelMoved || r <= 1/levelMoved) && math.Abs(c.AfterNs-c.BeforeNs) >= levelMovedNs
}

// replay takes in what one rank tells of a replay. It is no call: plans, learners and what is known of calls stay as they are.
func (c *Core) replay(nowNs state.Ns, r *Replay) {
	t := &c.totals.Replays
	t.Samples++
	m := c.comms[r.Comm]
	if m == nil || r.Bucket.Collective >= actions.NumCollectives || r.Bucket.Log2Bytes >= state.NumBuckets {
		t.Unknown++
		return
	}
	if m.replays == nil {
		m.replays = &replays{joiner: replayJoiner{heard: m.heard()}, choices: map[replayKey]*replayed{},
			rng: rand.New(rand.NewPCG(c.cfg.Seed, uint64(m.Comm)))}
	}
	o := m.replays.joiner.add(t, r)
	if o == nil {
		return
	}
	t.Joined++
	sums := &t.By[o.bucket.Collective]
	sums.Replays++
	sums.SignalNs += uint64(o.cost.signalNs)
	sums.CounterNs += uint64(o.cost.counterNs)
	p := m.replays.of(replayKey{o.bucket, o.bytes, o.action}, c.design, nowNs)
	if p == nil {
		t.Unkept++
		return
	}
	alarm, changed := p.observe(nowNs, o.cost, m.replays.rng)
	if alarm {
		t.Alarms++
	}
	if changed {
		t.Changes++
		sums.Changes++
		c.find(nowNs, m, o.bucket, agents.DiagnosisUnknown, p.tell())
	}
}

// of finds or makes what is known of a choice; nil: there are too many.
func (r *replays) of(k replayKey, d agents.Design, nowNs state.Ns) *replayed {
	p := r.choices[k]
	if p == nil && r.room(nowNs) {
		p = &replayed{replayKey: k, detector: agents.NewDetector(d)}
		p.detector.Share(&r.noise)
		r.choices[k] = p
	}
	return p
}

// room makes some for a choice, if there is none; false: all are replayed still.
func (r *replays) room(nowNs state.Ns) bool {
	if len(r.choices) < maxReplayed {
		return true
	}
	if nowNs < r.fullTo {
		return false
	}
	var oldest *replayed
	for _, p := range r.choices {
		if oldest == nil || cmp.Or(cmp.Compare(p.lastNs, oldest.lastNs), p.compare(oldest.replayKey)) < 0 {
			oldest = p
		}
	}
	if r.fullTo = oldest.lastNs + goneReplayedNs; nowNs < r.fullTo {
		return false
	}
	delete(r.choices, oldest.replayKey)
	return true
}

func (k replayKey) compare(o replayKey) int {
	return cmp.Or(cmp.Compare(k.bucket.Collective, o.bucket.Collective), cmp.Compare(k.bucket.Log2Bytes, o.bucket.Log2Bytes),
		cmp.Compare(k.bytes, o.bytes), byWord(k.action, o.action))
}

// tell says what has changed, and what alone can answer it.
func (p *replayed) tell() string {
	us := func(c agents.Change) string { return fmt.Sprintf("%.2f to %.2f us", c.BeforeNs/1e3, c.AfterNs/1e3) }
	text := fmt.Sprintf("replays of %s in CUDA graphs have changed: signal %s", p.action, us(p.changed.Signal))
	if p.changed.Counter.BeforeNs > 0 {
		text += ", counter " + us(p.changed.Counter)
	}
	return text + "; graphs keep their choices, so only a new calibration and a new capture can answer that"
}

// ReplayCounts is all that graphs hold in short.
type ReplayCounts struct {
	Replays uint64 // seen
	Choices int
	Changed int // of which the cost has changed
}

// CountReplays counts what Replays shows, and computes none of it, as CountLinks.
func (c *Core) CountReplays() (n ReplayCounts) {
	for _, m := range c.comms {
		if m.replays == nil {
			continue
		}
		n.Choices += len(m.replays.choices)
		for _, p := range m.replays.choices {
			n.Replays += p.seen
			if p.changes > 0 {
				n.Changed++
			}
		}
	}
	return n
}

// Replays shows what CUDA graphs hold and cost, in the order of joining, collective, size and choice.
func (c *Core) Replays() []ReplayView {
	var all []ReplayView
	for _, id := range c.order {
		all = append(all, c.ReplaysOf(id)...)
	}
	return all
}

// ReplaysOf shows those of one communicator; nil when it is not known.
func (c *Core) ReplaysOf(id CommID) (all []ReplayView) {
	m := c.comms[id]
	if m == nil || m.replays == nil {
		return nil
	}
	for _, p := range m.replays.choices {
		v := ReplayView{Comm: id, Shape: m.Shape, Bucket: p.bucket, Bytes: p.bytes, Choice: p.action, Replays: p.seen,
			FirstNs: p.firstNs, LastNs: p.lastNs, Changes: p.changes, Changed: p.changed}
		v.Signal, v.Counter = p.level.costs()
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b ReplayView) int {
		return replayKey{a.Bucket, a.Bytes, a.Choice}.compare(replayKey{b.Bucket, b.Bytes, b.Choice})
	})
	return all
}
