package nccltuner

import (
	"math"
	"math/bits"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Bounds of what a sample may say. They are far outside of what can be: a value beyond them was not measured but made
// by a broken process, and would poison sums.
const (
	maxSampleBytes = 1 << 50
	maxSampleSeq   = 1 << 56 // as many epochs as a record can count
	maxReplaySeq   = 1 << 32 // kernels in graphs and calls over GIN are numbered modulo this
	maxContexts    = 16      // of GIN, four times what NCCL has
)

const knownSampleFlags = SampleAggregated | SampleUnjoined | SampleHostTimed | SampleUntimed | SampleCaptured | SampleEventTimed | SampleLsa |
	SampleReplayed | SampleGin | SampleSymmetric | SampleTrip | SampleWished

// Sample is one collective on one rank, checked.
type Sample struct {
	CommID      uint64
	Seq         uint64 // getCollInfo call of the communicator; the profiler's own count when Unjoined; see Replayed
	Bytes       uint64 // Invariant: > 0, unless Trip
	StartNs     uint64 // first kernel start, or the stream's arrival (EventTimed), GPU clock (host's when HostTimed); 0: not known
	ClockNs     int64  // host's CLOCK_MONOTONIC less the GPU clock, too large by the time that telling took; 0: not known
	RecvNs      int64  // host's CLOCK_MONOTONIC at the end of the last network receive; EventTimed: when the call was issued; 0: not known
	CounterNs   state.Ns
	SignalNs    state.Ns // Invariant: > 0 unless Untimed; math.MaxUint32 stands for that and anything longer
	PlanVersion uint32   // low 32 bits of the version in force; 0: none
	Rank        int32
	NRanks      int
	Bucket      state.Bucket
	Action      actions.Action // asked for
	Ran         actions.Action // PathDefault: not known
	Aggregated  bool           // several collectives shared one getCollInfo call: not a cost of the bucket
	Wished      bool           // Action is a name that NCCL may decline
	Unjoined    bool
	HostTimed   bool
	EventTimed  bool   // by CUDA events around the call: launch included
	Made        uint16 // EventTimed: calls of its bucket so far, modulo 2^16
	EntryCall   uint8  // EventTimed: of its plan entry, from 1, saturates; 0: it has none
	Untimed     bool   // says what was asked for and, unless Captured, what ran; EventTimed: its host took too long to enqueue it
	Captured    bool   // went into a CUDA graph
	// Replayed: a CUDA graph ran our kernel again, which is no call. Seq is its number among the communicator's kernels in
	// graphs, modulo 2^32; times are the kernel's own. Invariant: CounterNs <= SignalNs.
	Replayed bool
	// Trip: one put of a kernel on GIN from Rank to Peer, which is no call. Seq is the call's number in its lane, of graphs where
	// Replayed is set; CounterNs until the source was read (0: Bytes is 0), SignalNs until the peer's answer was here. Bucket is
	// none.
	Trip    bool
	Peer    int32
	Context uint8
}

// Reject says why a sample was not believed. Zero: it was.
type Reject uint8

// Reasons to drop a sample.
const (
	rejectNone       Reject = iota
	RejectCollective        // a collective that this release does not know
	RejectBytes             // zero or huge
	RejectSeq               // a call number that nobody can have reached
	RejectAction            // an action word that this release does not know
	RejectUnmeasured        // no time of remote visibility, or one where there should be none, or before local completion
	RejectRank              // a rank outside the communicator
	RejectFlags             // flags of another release, or that exclude each other

	NumRejects
)

var rejectNames = [NumRejects]string{"none", "collective", "bytes", "seq", "action", "unmeasured", "rank", "flags"}

func (r Reject) String() string {
	if r < NumRejects {
		return rejectNames[r]
	}
	return "unknown"
}

// decodeSample checks a private copy of a cell and writes out only when it is believed.
func decodeSample(cell *ABISample, out *Sample) Reject {
	if cell.Flags&SampleTrip != 0 {
		return decodeTrip(cell, out)
	}
	if cell.Collective >= NumCollectives {
		return RejectCollective
	}
	bucket, ok := state.BucketOf(actions.Collective(cell.Collective), cell.Bytes)
	if !ok || cell.Bytes > maxSampleBytes {
		return RejectBytes
	}
	replayed := cell.Flags&SampleReplayed != 0
	if cell.Seq >= maxSampleSeq || replayed && cell.Seq >= maxReplaySeq {
		return RejectSeq
	}
	action, err := actions.FromWord(cell.Action)
	if err != nil {
		return RejectAction
	}
	if (cell.SignalNs == 0) != (cell.Flags&SampleUntimed != 0) || replayed && cell.CounterNs > cell.SignalNs {
		return RejectUnmeasured
	}
	if cell.NRanks == 0 || cell.Rank < 0 || cell.Rank >= int32(cell.NRanks) {
		return RejectRank
	}
	if cell.Flags&^knownSampleFlags != 0 || bits.OnesCount16(cell.Flags&(SampleLsa|SampleGin|SampleSymmetric)) > 1 || replayed && cell.Flags != SampleReplayed|SampleLsa {
		return RejectFlags
	}
	if cell.Flags&SampleWished != 0 && !bucket.Collective.Registered() {
		return RejectFlags // names are of registered memory alone
	}
	*out = Sample{
		CommID: cell.CommID, Seq: cell.Seq, Bytes: cell.Bytes,
		StartNs: cell.StartNs, ClockNs: int64(cell.ClockNs), RecvNs: int64(cell.RecvNs),
		CounterNs: state.Ns(cell.CounterNs), SignalNs: state.Ns(cell.SignalNs),
		PlanVersion: cell.PlanVersion, Rank: cell.Rank, NRanks: int(cell.NRanks),
		Bucket: bucket, Action: action,
		Aggregated: cell.Flags&SampleAggregated != 0,
		Wished:     cell.Flags&SampleWished != 0,
		Unjoined:   cell.Flags&SampleUnjoined != 0,
		HostTimed:  cell.Flags&SampleHostTimed != 0,
		EventTimed: cell.Flags&SampleEventTimed != 0,
		Made:       cell.Made, EntryCall: cell.EntryCall,
		Untimed:  cell.Flags&SampleUntimed != 0,
		Captured: cell.Flags&SampleCaptured != 0,
		Replayed: replayed,
	}
	out.Ran = ran(cell)
	return rejectNone
}

func decodeTrip(cell *ABISample, out *Sample) Reject {
	if cell.Flags&^SampleReplayed != SampleGin|SampleTrip || cell.Collective != 0 {
		return RejectFlags
	}
	if cell.Bytes > maxSampleBytes {
		return RejectBytes
	}
	if cell.Seq >= maxReplaySeq {
		return RejectSeq
	}
	action, err := actions.FromWord(cell.Action)
	if err != nil || action.Path != actions.PathGIN || uint8(action.Backend) != cell.Algorithm || action.Channels != cell.Channels || cell.Protocol >= maxContexts ||
		action.Contexts != 0 && cell.Protocol >= action.Contexts {
		return RejectAction
	}
	if cell.SignalNs == 0 || cell.Bytes == 0 && cell.CounterNs != 0 {
		return RejectUnmeasured
	}
	if cell.Rank < 0 || cell.Rank >= int32(cell.NRanks) || uint16(cell.Peer) >= cell.NRanks || int32(cell.Peer) == cell.Rank {
		return RejectRank
	}
	*out = Sample{
		CommID: cell.CommID, Seq: cell.Seq, Bytes: cell.Bytes, CounterNs: state.Ns(cell.CounterNs), SignalNs: state.Ns(cell.SignalNs),
		Rank: cell.Rank, NRanks: int(cell.NRanks), Action: action, Ran: action, Replayed: cell.Flags&SampleReplayed != 0,
		Trip: true, Peer: int32(cell.Peer), Context: cell.Protocol,
	}
	return rejectNone
}

// ran gives what ran. It may be a kernel that we have no name for; the measurement is good all the same.
func ran(cell *ABISample) actions.Action {
	lsa, gin := cell.Flags&SampleLsa != 0, cell.Flags&SampleGin != 0
	switch {
	case gin && cell.Algorithm < actions.NumBackends && cell.Protocol&^actions.GINFlat <= actions.MaxContexts:
		return actions.Action{Path: actions.PathGIN, Backend: actions.Backend(cell.Algorithm), Channels: cell.Channels,
			Contexts: cell.Protocol &^ actions.GINFlat, Flat: cell.Protocol&actions.GINFlat != 0}
	case lsa && cell.Algorithm < NumKernels && cell.Protocol == 0 && cell.Channels <= actions.MaxCTAs:
		return actions.Action{Path: actions.PathLSA, Kernel: actions.Kernel(cell.Algorithm), Channels: cell.Channels}
	case cell.Flags&SampleSymmetric != 0 && cell.Algorithm > 0 && cell.Algorithm < actions.NumSymmetric && cell.Protocol == 0:
		return actions.Action{Path: actions.PathSymmetric, Symmetric: actions.Symmetric(cell.Algorithm)}
	case !lsa && !gin && cell.Flags&SampleSymmetric == 0 && cell.Algorithm < actions.NumAlgorithms && cell.Protocol < actions.NumProtocols:
		return actions.Action{Path: actions.PathCollective, Algorithm: actions.Algorithm(cell.Algorithm), Protocol: actions.Protocol(cell.Protocol),
			Channels: cell.Channels}
	}
	return actions.Action{}
}

// saturated says that a duration stands at the end of its 32 bits.
func saturated(cell *ABISample) bool {
	return cell.CounterNs == math.MaxUint32 || cell.SignalNs == math.MaxUint32
}
