package tuner

import (
	"dynamiccl/actions"
	"dynamiccl/state"
)

// replayWindow is how many replays of a communicator are kept open. Ranks tell of theirs twice a second, a second apart, and in
// any order, of up to 1,024 at once (preload/replays.c, DYN_STAMPS).
const replayWindow = 4096

// replayCost is what one replay took.
type replayCost struct{ signalNs, counterNs state.Ns }

func (c replayCost) less(than replayCost) bool {
	return c.signalNs < than.signalNs || c.signalNs == than.signalNs && c.counterNs < than.counterNs
}

// openReplay gathers what the ranks tell of one replay. It stays when it is complete, to know a rank that repeats itself.
type openReplay struct {
	number uint32
	bad    bool   // ranks that do not tell the same
	seen   uint64 // bit r: rank r has reported
	bytes  uint64
	cost   replayCost // of the rank that counts
	bucket state.Bucket
	action actions.Action
	ran    actions.Action
}

// replayJoiner puts ranks' samples of one communicator's replays together, by number. Unlike calls, replays have no window of
// numbers: only some are told, and which ones is the kernels' affair.
type replayJoiner struct {
	heard     uint64            // bit r: rank r tells of its replays
	open      []openReplay      // at most replayWindow, then a ring: the next is at oldest
	at        map[uint32]uint32 // number: place in open
	oldest    int
	closed    bool   // some were closed to make room,
	newest    uint32 // of which this is the greatest number: a rank that tells of it, or of one before it, is late
	lateInRow int    // samples since one that fitted
}

// add takes one sample. It gives the replay when that is complete and all ranks told the same; nil otherwise. The pointer
// is good until the next add.
func (j *replayJoiner) add(t *ReplayTotals, r *Replay) *openReplay {
	i, known := j.at[r.Number]
	bit := uint64(1) << uint(r.Rank)
	switch {
	case !tells(j.heard, r.Rank), r.SignalNs <= 0, r.CounterNs < 0, r.CounterNs > r.SignalNs,
		known && j.open[i].seen&bit != 0,
		!known && j.closed && int32(r.Number-j.newest) <= 0: // numbers wrap: what is less than half a round ahead is later
		t.Late++
		if j.lateInRow++; j.lateInRow == stuckSamples { // one wild number, or none was told for half a round
			j.restart()
		}
		return nil
	case !known:
		i = j.begin(t, r.Number)
	}
	j.lateInRow = 0
	o := &j.open[i]
	o.take(t, r, bit)
	if o.bad || o.seen != j.heard {
		return nil
	}
	return o
}

// begin finds room for a number that no rank has told of yet.
func (j *replayJoiner) begin(t *ReplayTotals, number uint32) uint32 {
	if j.at == nil {
		j.at = map[uint32]uint32{}
	}
	i := len(j.open)
	if i < replayWindow {
		j.open = append(j.open, openReplay{})
	} else {
		i = j.oldest
		j.oldest = (i + 1) % replayWindow
		o := &j.open[i]
		if o.seen != j.heard {
			t.Incomplete++
		}
		if !j.closed || int32(o.number-j.newest) > 0 {
			j.closed, j.newest = true, o.number
		}
		delete(j.at, o.number)
	}
	j.open[i] = openReplay{number: number}
	j.at[number] = uint32(i)
	return uint32(i)
}

// take adds one rank.
//
// The last rank to arrive waits for nobody, so its kernel's time is what the replay takes, and the shortest: the others' have
// the wait for it in them. In a Broadcast nobody waits who has the data already: the shortest time is how long that rank took
// to send, and the data is everywhere when the slowest has it, so there the longest counts, a late root's delay with it.
func (o *openReplay) take(t *ReplayTotals, r *Replay, bit uint64) {
	c := replayCost{r.SignalNs, r.CounterNs}
	if o.seen == 0 {
		o.bucket, o.bytes, o.action, o.ran, o.cost = r.Bucket, r.Bytes, r.Action, r.Ran, c
	}
	o.seen |= bit
	if o.ran == actions.Default { // that rank could not tell
		o.ran = r.Ran
	}
	differs := o.bucket != r.Bucket || o.bytes != r.Bytes || o.action != r.Action || r.Ran != actions.Default && o.ran != r.Ran
	if (differs || r.Ran != actions.Default && overrules(r.Ran, r.Action)) && !o.bad {
		o.bad = true
		t.Disagreed++
	}
	if o.bucket.Collective == actions.Broadcast && o.cost.less(c) || o.bucket.Collective != actions.Broadcast && c.less(o.cost) {
		o.cost = c
	}
}

// restart forgets all numbers.
func (j *replayJoiner) restart() { *j = replayJoiner{heard: j.heard} }
