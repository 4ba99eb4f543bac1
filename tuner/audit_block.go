package tuner

import "math"

const (
	auditSteps = 6   // of a block, at least
	auditLead  = 2   // steps behind a change that do not count
	auditMost  = 128 // times of a block that are kept
	// Of a block's epochs one in so many is sampled, or one in half as many, or ..., so that it takes no more than auditLonger times as long as
	// where all are; or auditShort calls, which short steps may take.
	auditThin   = 8
	auditLonger = 1.5
	auditShort  = 192
	epochCalls  = 16 // of NCCL's, between two looks of a rank at its plan; the first one of a sampled epoch is not timed
)

// auditBlock measures the steps of a block: from a call to one of the same place in the step, a step later or several, by the last rank's
// starts. Calls in between need not be timed.
type auditBlock struct {
	awaits  bool         // its plan was not published yet
	version uint32       // of its plan, or an earlier one of the same way
	began   uint64       // the communicator's newest call then
	from    uint64       // its first call that was heard
	after   uint64       // calls before it are in what was measured
	addedNs int64        // by timing them to calls since from
	starts  []auditStart // by place; nil: no call was heard
	steps   int          // measured
	logNs   []float64    // the logarithms of a step in each time that was measured
}

// auditStart is the latest call of a place in the step whose start is known.
type auditStart struct {
	seq              uint64
	startNs, addedNs int64 // 0: none
}

// hear takes in a call at a place of the step. addedNs is what timing it has added to it.
func (b *auditBlock) hear(seq uint64, at, period int, startNs, addedNs int64) {
	if b.starts == nil {
		b.from, b.starts = seq, make([]auditStart, period)
	}
	before := b.addedNs
	b.addedNs += addedNs
	if startNs == 0 || seq < b.from+uint64(auditLead*period) {
		return
	}
	s := &b.starts[at]
	if seq <= s.seq && s.startNs != 0 {
		return
	}
	if s.startNs != 0 && s.seq >= b.after && startNs > s.startNs && (seq-s.seq)%uint64(period) == 0 && len(b.logNs) < auditMost {
		n, tookNs := int(seq-s.seq)/period, startNs-s.startNs
		b.logNs = append(b.logNs, math.Log(float64(tookNs-min(before-s.addedNs, tookNs/2))/float64(n)))
		b.steps += n
		b.after = seq
	}
	*s = auditStart{seq, startNs, before}
}

// lose forgets what a call would be measured from: which place it had nobody knows any more.
func (b *auditBlock) lose() { clear(b.starts) }

// whole says that its steps are measured.
func (b *auditBlock) whole() bool { return b.steps >= auditSteps }

// auditEvery is the epochs between two sampled ones in blocks of steps of so many calls, a power of two.
func auditEvery(period int) int {
	calls := max(auditShort, int(auditLonger*float64((auditLead+auditSteps)*period)))
	for every := auditThin; every > 1; every /= 2 {
		var b auditBlock
		for seq := 0; seq < calls && !b.whole(); seq++ {
			if seq/epochCalls%every == 0 && seq%epochCalls != 0 {
				b.hear(uint64(seq), seq%period, period, int64(seq), 0)
			}
		}
		if b.whole() {
			return every
		}
	}
	return 1
}
