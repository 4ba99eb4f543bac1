package tuner

import "math"

// shortNs is what a call may take at most for its place among others to matter: what a GPU's front end, or a stream that has run
// out of work, adds to a call or takes from it is a few microseconds.
const shortNs = 20_000

// skip is how many calls come before the trials of the present entry, where trials are timed one by one. There is one at least, for
// no rank knows of a trial before the call in front of it. Plans come into force where a program waited, so without more of them
// trials of short calls would stand at the beginning of its batches and nowhere else, and what runs is measured everywhere
// (docs/design.md, decision 6). So trials begin anywhere among as many calls as passed since the entry before; the places go on by
// the golden ratio.
func (b *bucket) skip() int {
	span := min(b.passed, MaxSkip)
	if known := b.guard.Estimate(b.entry.Base); known.N == 0 || known.LogNs > math.Log(shortNs) {
		span = 0
	}
	return 1 + int(uint64(b.entry.ID*0x9E3779B9)*uint64(max(0, span-1))>>32)
}
