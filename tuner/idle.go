package tuner

import "dynamiccl/state"

// A short call takes more than twice as long where its GPU waits for the host as where it is enqueued ahead: it shows the way of a
// launch, which is the same for all choices, or the host's own time. A program has calls of both kinds, and where few were sampled
// chance had a choice compared with NCCL's default that way (2x H200, NCCL 2.32.3, AllGather of 1 KiB on registered memory: the
// default takes 4.2 us and ours 2.7 behind other calls, 5 and 6.3 where the GPU waits). So while a good part of a bucket's calls are
// enqueued ahead the others are not charged.
const (
	idleCalls  = 64   // that the share is the mean of, about
	mostlyIdle = 0.75 // from this share on all calls count: there are hardly any others
)

// idle is which part of a bucket's short calls their GPU waited for.
type idle struct {
	share float64
	calls int
}

// waits reports that a call is not to be charged, since its GPU waited for it.
func (b *bucket) waits(o *state.Observation) bool {
	if o.SignalNs > shortNs {
		return false
	}
	x := 0.0
	if o.Idle {
		x = 1
	}
	b.idle.calls = min(b.idle.calls+1, idleCalls)
	b.idle.share += (x - b.idle.share) / float64(b.idle.calls)
	return o.Idle && b.idle.share < mostlyIdle
}
