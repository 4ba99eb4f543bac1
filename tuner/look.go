package tuner

// Once all has settled one call in thousands is timed, and where a program has many sizes some of them hardly ever. A bucket whose
// trials lost a sample then waits for long until a call tells that they are over, and one that was told wrong by its only sample
// of an action never hears it again (24 sizes on registered memory, 2x H200, 30 s: AllReduce of 1 KiB had two trials in 4,500
// calls, and stayed with NCCL's default, where 1.5 times its speed could be had).
const (
	lostAfter = 8192  // calls of the communicator since anything was heard of a bucket under trial: its samples are lost
	lookAfter = 16384 // likewise, of any other: a call of it is timed by itself
	mostLost  = 16    // doublings of lostAfter while nothing is heard: the program may make no such calls any more
)

// look keeps a bucket from being forgotten, where ranks time trials one by one.
type look struct {
	heardAt uint64 // the communicator's newest call when the bucket was last heard of, or its entry came into force
	lost    uint   // trials given up since
	due     bool   // the next entry has a trial of the base, if of nothing else
	taken   bool   // since the bucket was last heard of
}

func (l *look) heard(newest uint64) { *l = look{heardAt: newest} }

// overdue is to be asked before a bucket proposes.
func (b *bucket) overdue(newest uint64) {
	quiet := newest - b.look.heardAt
	switch {
	case b.nextTrial < len(b.entry.Trials):
		if b.published && quiet > lostAfter<<min(b.look.lost, mostLost) {
			b.nextTrial, b.fresh = len(b.entry.Trials), true
			b.look.lost++
			b.look.heardAt = newest
		}
	case quiet > lookAfter && !b.look.taken:
		b.look.due, b.look.taken, b.fresh = true, true, true
	}
}
