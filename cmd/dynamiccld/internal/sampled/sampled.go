// Package sampled turns what ranks tell into what the core takes in.
package sampled

import (
	"dynamiccl/nccltuner"
	"dynamiccl/tuner"
)

// Event gives the core's event of a call's sample; false: it is of a graph's replay or a put, or says nothing of a cost, for it has no
// call number and joins no group, or nobody was to time it.
func Event(s *nccltuner.Sample, out *tuner.Sample) bool {
	if s.Unjoined || s.Untimed && (!s.EventTimed || s.Captured) || s.Replayed || s.Trip {
		return false
	}
	*out = tuner.Sample{Comm: tuner.CommID(s.CommID), Seq: s.Seq, Rank: s.Rank, Bucket: s.Bucket, Bytes: s.Bytes, Plan: s.PlanVersion,
		StartNs: s.StartNs, ClockNs: s.ClockNs, RecvNs: s.RecvNs, CounterNs: s.CounterNs, SignalNs: s.SignalNs,
		Action: s.Action, Ran: s.Ran, Aggregated: s.Aggregated, Wished: s.Wished, HostTimed: s.HostTimed, EventTimed: s.EventTimed,
		Made: s.Made, EntryCall: s.EntryCall, Slow: s.Untimed}
	return true
}

// Replay gives the core's event of a replay's sample; false: it is none.
func Replay(s *nccltuner.Sample, out *tuner.Replay) bool {
	if !s.Replayed || s.Trip {
		return false
	}
	*out = tuner.Replay{Comm: tuner.CommID(s.CommID), Number: uint32(s.Seq), Rank: s.Rank, Bucket: s.Bucket, Bytes: s.Bytes,
		Action: s.Action, Ran: s.Ran, CounterNs: s.CounterNs, SignalNs: s.SignalNs}
	return true
}

// Trip gives the core's event of what a rank tells of a put over GIN; false: it is none.
func Trip(s *nccltuner.Sample, out *tuner.Trip) bool {
	if !s.Trip {
		return false
	}
	*out = tuner.Trip{Comm: tuner.CommID(s.CommID), Number: uint32(s.Seq), InGraph: s.Replayed, Rank: s.Rank, Peer: s.Peer, Context: s.Context,
		Action: s.Action, Bytes: s.Bytes, CounterNs: s.CounterNs, SignalNs: s.SignalNs}
	return true
}
