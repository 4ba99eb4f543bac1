package tuner

import (
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Once all has settled one call in thousands is timed, and where a program has many sizes some of them hardly ever. A bucket whose
// trials lost a sample then waits for long until a call tells that they are over; one that was told wrong by its only sample of an
// action never hears it again (24 sizes on registered memory, 2x H200, 30 s: AllReduce of 1 KiB had two trials in 4,500 calls, and
// stayed with NCCL's default, where 1.5 times its speed could be had); and the slower calls become, the longer it takes until one of
// them is seen: with links of 0.2 GB/s AllToAll of 1 MiB over GIN took 2.7 ms, ten times NCCL's default, for 10 s with two calls
// timed (2x H200). So buckets are looked at by the clock, too: two timed calls in half a second are 0.002% of it. And where a call
// was far off what is usual, more are timed at once, which say whether conditions changed.
const (
	lostAfter   = 8192  // calls of the communicator since anything was heard of a bucket under trial: its samples are lost
	lookAfter   = 16384 // likewise, of any other: a call of it is timed by itself
	lookAfterNs = state.Ns(500e6)
	mostLost    = 16 // doublings of lostAfter while nothing is heard: the program may make no such calls any more
	doubtCalls  = 2  // of what runs, and the one behind all trials: as many as make a jump
)

// look keeps a bucket from being forgotten, where ranks time trials one by one.
type look struct {
	heardAt uint64   // the communicator's newest call when the bucket was last heard of, or its entry came into force
	heardNs state.Ns // likewise
	lost    uint     // trials given up since
	calls   int      // of the base that the next entry has for trials, if it has no others
	taken   bool     // since the bucket was last heard of
}

func (l *look) heard(newest uint64, nowNs state.Ns) { *l = look{heardAt: newest, heardNs: nowNs} }

// overdue is to be asked before a bucket proposes.
func (b *bucket) overdue(newest uint64, nowNs state.Ns) {
	quiet := newest - b.look.heardAt
	switch {
	case b.nextTrial < len(b.entry.Trials):
		if b.published && quiet > lostAfter<<min(b.look.lost, mostLost) {
			b.nextTrial, b.fresh = len(b.entry.Trials), true
			b.look.lost++
			b.look.heardAt, b.look.heardNs = newest, nowNs
		}
	case b.look.taken || !b.published:
	case b.guard.Doubts():
		b.lookAt(doubtCalls)
	case quiet > lookAfter || nowNs-b.look.heardNs > lookAfterNs:
		b.lookAt(1)
	}
}

func (b *bucket) lookAt(calls int) { b.look.calls, b.look.taken, b.fresh = calls, true, true }

// exploring reports that calls of something else than what is in force are under way.
func (b *bucket) exploring() bool {
	return slices.ContainsFunc(b.entry.Trials[min(b.nextTrial, len(b.entry.Trials)):], func(a actions.Action) bool { return a != b.entry.Base })
}
