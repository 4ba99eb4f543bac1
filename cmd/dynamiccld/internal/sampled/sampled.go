// Package sampled turns what ranks tell into what the core takes in.
package sampled

import (
	"dynamiccl/nccltuner"
	"dynamiccl/tuner"
)

// Event gives the core's event of a sample; false: it says nothing of a cost, for it has no call number and joins no
// group, or no times.
func Event(s *nccltuner.Sample, out *tuner.Sample) bool {
	if s.Unjoined || s.Untimed {
		return false
	}
	*out = tuner.Sample{Comm: tuner.CommID(s.CommID), Seq: s.Seq, Rank: s.Rank, Bucket: s.Bucket, Bytes: s.Bytes, Plan: s.PlanVersion,
		StartNs: s.StartNs, ClockNs: s.ClockNs, RecvNs: s.RecvNs, CounterNs: s.CounterNs, SignalNs: s.SignalNs,
		Action: s.Action, Ran: s.Ran, Aggregated: s.Aggregated, HostTimed: s.HostTimed, EventTimed: s.EventTimed,
		Made: s.Made, EntryCall: s.EntryCall}
	return true
}
