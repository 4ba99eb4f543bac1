package nccltuner

import (
	"math"
	"testing"
	"unsafe"

	"dynamiccl/actions"
	"dynamiccl/state"
)

func TestDecodeSample(t *testing.T) {
	want := Sample{
		CommID: 5, Seq: 9, Bytes: 1 << 20, CounterNs: 1000, SignalNs: 2000, PlanVersion: 3, Rank: 1, NRanks: 8,
		Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20},
		Action: actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL128, Channels: 24},
		Ran:    actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL128, Channels: 24},
	}
	for _, c := range []struct {
		name   string
		change func(cell *ABISample, want *Sample)
	}{
		{"as it is", func(*ABISample, *Sample) {}},
		{"default", func(c *ABISample, w *Sample) { c.Action, w.Action = 0, actions.Default }},
		{"unknown algorithm ran", func(c *ABISample, w *Sample) { c.Algorithm, w.Ran = 255, actions.Action{} }},
		{"next algorithm ran", func(c *ABISample, w *Sample) { c.Algorithm, w.Ran = actions.NumAlgorithms, actions.Action{} }},
		{"unknown protocol ran", func(c *ABISample, w *Sample) { c.Protocol, w.Ran = 255, actions.Action{} }},
		{"our kernel", func(c *ABISample, w *Sample) {
			asked := actions.Action{Path: actions.PathLSA, Kernel: actions.TwoShot, Channels: 16}
			c.Action, w.Action = asked.Word(), asked
			c.Flags, c.Algorithm, c.Protocol, c.Channels = SampleLsa, KernelTwoShot, 0, 4
			w.Ran = actions.Action{Path: actions.PathLSA, Kernel: actions.TwoShot, Channels: 4}
		}},
		{"unknown kernel of ours", func(c *ABISample, w *Sample) {
			c.Flags, c.Algorithm, c.Protocol, w.Ran = SampleLsa, NumKernels, 0, actions.Action{}
		}},
		{"our kernel over GIN", func(c *ABISample, w *Sample) {
			w.Action = actions.Action{Path: actions.PathGIN, Backend: actions.BackendProxy, Channels: 4}
			c.Action = w.Action.Word()
			c.Flags, c.Algorithm, c.Protocol, c.Channels = SampleGin, BackendProxy, 0, 2
			w.Ran = actions.Action{Path: actions.PathGIN, Backend: actions.BackendProxy, Channels: 2}
		}},
		{"CTAs over GIN that share contexts", func(c *ABISample, w *Sample) {
			w.Action = actions.Action{Path: actions.PathGIN, Backend: actions.BackendProxy, Channels: 8, Contexts: 2}
			c.Action = w.Action.Word()
			c.Flags, c.Algorithm, c.Protocol, c.Channels = SampleGin, BackendProxy, 2, 4
			w.Ran = actions.Action{Path: actions.PathGIN, Backend: actions.BackendProxy, Channels: 4, Contexts: 2}
		}},
		{"more contexts than there are", func(c *ABISample, w *Sample) {
			c.Flags, c.Algorithm, c.Protocol, w.Ran = SampleGin, BackendProxy, actions.MaxContexts+1, actions.Action{}
		}},
		{"GIN of an unknown kind", func(c *ABISample, w *Sample) {
			c.Flags, c.Algorithm, c.Protocol, w.Ran = SampleGin, 7, 0, actions.Action{}
		}},
		{"our kernel with a protocol", func(c *ABISample, w *Sample) { c.Flags, c.Algorithm, w.Ran = SampleLsa, KernelBulk, actions.Action{} }},
		{"saturated", func(c *ABISample, w *Sample) { c.SignalNs, w.SignalNs = math.MaxUint32, math.MaxUint32 }},
		{"counter not measured", func(c *ABISample, w *Sample) { c.CounterNs, w.CounterNs = 0, 0 }},
		{"smallest", func(c *ABISample, w *Sample) { c.Bytes, w.Bytes, w.Bucket.Log2Bytes = 1, 1, 0 }},
		{"largest", func(c *ABISample, w *Sample) { c.Bytes, w.Bytes, w.Bucket.Log2Bytes = 1<<50, 1<<50, 47 }},
		{"aggregated", func(c *ABISample, w *Sample) { c.Flags, w.Aggregated = SampleAggregated, true }},
		{"unjoined", func(c *ABISample, w *Sample) { c.Flags, w.Unjoined = SampleUnjoined, true }},
		{"host timed", func(c *ABISample, w *Sample) { c.Flags, w.HostTimed = SampleHostTimed, true }},
		{"event timed", func(c *ABISample, w *Sample) { c.Flags, w.EventTimed = SampleEventTimed, true }},
		{"instants", func(c *ABISample, w *Sample) {
			c.StartNs, c.ClockNs, c.RecvNs = 77, math.MaxUint64-4, 99
			w.StartNs, w.ClockNs, w.RecvNs = 77, -5, 99
		}},
		{"untimed", func(c *ABISample, w *Sample) {
			c.Flags, c.SignalNs, w.SignalNs, w.Untimed = SampleUntimed, 0, 0, true
		}},
		{"too slow at its host", func(c *ABISample, w *Sample) {
			c.Flags, c.SignalNs, c.CounterNs = SampleUntimed|SampleEventTimed, 0, 0
			w.SignalNs, w.CounterNs, w.Untimed, w.EventTimed = 0, 0, true, true
		}},
		{"captured", func(c *ABISample, w *Sample) {
			c.Flags, c.SignalNs, c.Algorithm = SampleUntimed|SampleCaptured, 0, 255
			w.SignalNs, w.Untimed, w.Captured, w.Ran = 0, true, true, actions.Action{}
		}},
		{"replayed", func(c *ABISample, w *Sample) {
			replayOf(c)
			w.Seq, w.PlanVersion, w.Replayed = 1<<32-1, 0, true
			w.Action = actions.Action{Path: actions.PathLSA, Kernel: actions.TwoShot, Channels: 16}
			w.Ran = actions.Action{Path: actions.PathLSA, Kernel: actions.TwoShot, Channels: 4}
		}},
		{"replayed, sent as late as received", func(c *ABISample, w *Sample) {
			replayOf(c)
			c.Seq, c.Algorithm, c.CounterNs, c.SignalNs = 0, NumKernels, math.MaxUint32, math.MaxUint32
			w.Seq, w.PlanVersion, w.Replayed, w.CounterNs, w.SignalNs = 0, 0, true, math.MaxUint32, math.MaxUint32
			w.Action, w.Ran = actions.Action{Path: actions.PathLSA, Kernel: actions.TwoShot, Channels: 16}, actions.Action{}
		}},
		{"put", func(c *ABISample, w *Sample) {
			tripOf(c)
			*w = Sample{CommID: c.CommID, Seq: 1<<32 - 1, Bytes: c.Bytes, CounterNs: w.CounterNs, SignalNs: w.SignalNs, Rank: w.Rank, NRanks: w.NRanks,
				Action: tripAction, Ran: tripAction, Trip: true, Peer: 7, Context: 3}
		}},
		{"a signal alone, in a graph", func(c *ABISample, w *Sample) {
			tripOf(c)
			c.Flags |= SampleReplayed
			c.Bytes, c.CounterNs = 0, 0
			*w = Sample{CommID: c.CommID, Seq: 1<<32 - 1, SignalNs: w.SignalNs, Rank: w.Rank, NRanks: w.NRanks,
				Action: tripAction, Ran: tripAction, Trip: true, Replayed: true, Peer: 7, Context: 3}
		}},
		{"first collective", func(c *ABISample, w *Sample) { c.Collective, w.Bucket.Collective = 0, actions.Broadcast }},
		{"on registered memory, by name", func(c *ABISample, w *Sample) {
			named := actions.Action{Path: actions.PathSymmetric, Symmetric: actions.SymmetricAGxLL}
			c.Collective, c.Action, c.Flags, c.Algorithm, c.Protocol = 8, named.Word(), SampleSymmetric, SymmetricAgLl, 0
			w.Bucket.Collective, w.Action, w.Ran = actions.AllReduceRegistered, named, named
		}},
		{"by a name that NCCL has declined", func(c *ABISample, w *Sample) {
			named := actions.Action{Path: actions.PathSymmetric, Symmetric: actions.SymmetricST}
			c.Collective, c.Action, c.Flags = 8, named.Word(), SampleEventTimed|SampleWished
			w.Bucket.Collective, w.Action, w.EventTimed, w.Wished = actions.AllReduceRegistered, named, true, true
		}},
		{"a symmetric kernel of a newer release", func(c *ABISample, w *Sample) {
			c.Flags, c.Algorithm, c.Protocol = SampleSymmetric, NumSymmetric, 0
			w.Ran = actions.Action{}
		}},
		{"last rank", func(c *ABISample, w *Sample) { c.Rank, w.Rank = 7, 7 }},
	} {
		cell, want := goodSample(), want
		c.change(&cell, &want)
		var got Sample
		if reason := decodeSample(&cell, &got); reason != rejectNone || got != want {
			t.Errorf("%s: %v, %+v, want %+v", c.name, reason, got, want)
		}
	}
}

// replayOf makes the sample one of a graph's replay, as the preload library does.
func replayOf(c *ABISample) {
	asked := actions.Action{Path: actions.PathLSA, Kernel: actions.TwoShot, Channels: 16}
	c.Seq, c.PlanVersion, c.Action, c.Flags = 1<<32-1, 0, asked.Word(), SampleReplayed|SampleLsa
	c.Algorithm, c.Protocol, c.Channels = KernelTwoShot, 0, 4
}

var tripAction = actions.Action{Path: actions.PathGIN, Backend: actions.BackendProxy, Channels: 8}

// tripOf makes the sample that of a put over GIN.
func tripOf(c *ABISample) {
	c.Seq, c.PlanVersion, c.Action, c.Flags = 1<<32-1, 0, tripAction.Word(), SampleTrip|SampleGin
	c.Collective, c.Algorithm, c.Protocol, c.Channels, c.Peer = 0, uint8(actions.BackendProxy), 3, 8, 7
}

func TestDecodeSampleRejects(t *testing.T) {
	for _, c := range []struct {
		change func(*ABISample)
		want   Reject
	}{
		{func(c *ABISample) { c.Collective = NumCollectives }, RejectCollective},
		{func(c *ABISample) { c.Collective = 255 }, RejectCollective},
		{func(c *ABISample) { c.Bytes = 0 }, RejectBytes},
		{func(c *ABISample) { c.Bytes = 1<<50 + 1 }, RejectBytes},
		{func(c *ABISample) { c.Bytes = math.MaxUint64 }, RejectBytes},
		{func(c *ABISample) { c.Seq = 1 << 56 }, RejectSeq},
		{func(c *ABISample) { c.Action = 5 }, RejectAction},
		{func(c *ABISample) { c.Action = 0x00010000 }, RejectAction},
		{func(c *ABISample) { c.Action = math.MaxUint32 }, RejectAction},
		{func(c *ABISample) { c.Action = 0x71 }, RejectAction},
		{func(c *ABISample) { c.SignalNs = 0 }, RejectUnmeasured},
		{func(c *ABISample) { c.Rank = -1 }, RejectRank},
		{func(c *ABISample) { c.Rank = 8 }, RejectRank},
		{func(c *ABISample) { c.NRanks = 0 }, RejectRank},
		{func(c *ABISample) { c.Flags = SampleUntimed }, RejectUnmeasured}, // with a time
		{func(c *ABISample) { c.Flags = 2048 }, RejectFlags},
		{func(c *ABISample) { c.Flags = SampleTrip }, RejectFlags}, // of no kernel on GIN
		{func(c *ABISample) { tripOf(c); c.Flags |= SampleEventTimed }, RejectFlags},
		{func(c *ABISample) { tripOf(c); c.Flags |= SampleUntimed }, RejectFlags},
		{func(c *ABISample) { tripOf(c); c.Collective = 1 }, RejectFlags},
		{func(c *ABISample) { tripOf(c); c.Bytes = 1<<50 + 1 }, RejectBytes},
		{func(c *ABISample) { tripOf(c); c.Seq = 1 << 32 }, RejectSeq},
		{func(c *ABISample) { tripOf(c); c.Algorithm = uint8(actions.BackendGDAKI) }, RejectAction},
		{func(c *ABISample) { tripOf(c); c.Channels = 4 }, RejectAction},
		{func(c *ABISample) { tripOf(c); c.Protocol = 16 }, RejectAction},
		{func(c *ABISample) { tripOf(c); c.Action |= 3 << ActionContextsShift }, RejectAction}, // context 3 of 3
		{func(c *ABISample) { tripOf(c); c.Action = 0 }, RejectAction},
		{func(c *ABISample) { tripOf(c); c.SignalNs = 0 }, RejectUnmeasured},
		{func(c *ABISample) { tripOf(c); c.Bytes = 0 }, RejectUnmeasured}, // with a counter
		{func(c *ABISample) { tripOf(c); c.Peer = uint8(c.Rank) }, RejectRank},
		{func(c *ABISample) { tripOf(c); c.Peer = 8 }, RejectRank},
		{func(c *ABISample) { tripOf(c); c.Rank = -1 }, RejectRank},
		{func(c *ABISample) { c.Flags = SampleLsa | SampleSymmetric }, RejectFlags},
		{func(c *ABISample) { c.Flags = SampleLsa | SampleGin }, RejectFlags},
		{func(c *ABISample) { c.Flags = SampleWished }, RejectFlags}, // of memory that has no names
		{func(c *ABISample) { c.Flags = SampleReplayed }, RejectFlags},
		{func(c *ABISample) { replayOf(c); c.Flags |= SampleHostTimed }, RejectFlags},
		{func(c *ABISample) { replayOf(c); c.Flags |= SampleCaptured }, RejectFlags},
		{func(c *ABISample) { replayOf(c); c.Flags |= SampleEventTimed }, RejectFlags},
		{func(c *ABISample) { replayOf(c); c.Flags |= SampleAggregated }, RejectFlags},
		{func(c *ABISample) { replayOf(c); c.Flags |= SampleUnjoined }, RejectFlags},
		{func(c *ABISample) { replayOf(c); c.Flags |= SampleUntimed }, RejectUnmeasured}, // with a time
		{func(c *ABISample) { replayOf(c); c.Flags |= SampleUntimed; c.CounterNs, c.SignalNs = 0, 0 }, RejectFlags},
		{func(c *ABISample) { replayOf(c); c.CounterNs, c.SignalNs = 0, 0 }, RejectUnmeasured},
		{func(c *ABISample) { replayOf(c); c.CounterNs = c.SignalNs + 1 }, RejectUnmeasured},
		{func(c *ABISample) { replayOf(c); c.Seq = 1 << 32 }, RejectSeq},
	} {
		cell := goodSample()
		c.change(&cell)
		got := Sample{CommID: 77}
		if reason := decodeSample(&cell, &got); reason != c.want || got != (Sample{CommID: 77}) {
			t.Errorf("%+v: rejected for %v with %+v, want %v and nothing written", cell, reason, got, c.want)
		}
	}
	seen := map[string]bool{}
	for r := range NumRejects {
		if seen[r.String()] || r.String() == "" || r.String() == "unknown" {
			t.Errorf("reason %d is called %q", r, r)
		}
		seen[r.String()] = true
	}
	if NumRejects.String() != "unknown" {
		t.Errorf("no reason at all is called %q", NumRejects)
	}
}

// Whatever stands in a cell, a sample that comes out keeps its invariants and fits what the cell says.
func FuzzDecodeSample(f *testing.F) {
	add := func(cell ABISample) { f.Add((*[cellSize]byte)(unsafe.Pointer(&cell))[:]) }
	add(goodSample())
	add(ABISample{})
	other := goodSample()
	other.Algorithm, other.Flags, other.Bytes, other.Action = 255, 7, 1<<50, 0
	add(other)
	other.Algorithm, other.Protocol, other.Flags = KernelBulk, 0, SampleLsa|SampleEventTimed
	add(other)
	replayOf(&other)
	add(other)
	other = goodSample()
	other.Algorithm, other.Protocol, other.Flags = 1, 0, SampleSymmetric|SampleEventTimed
	add(other)
	other = goodSample()
	tripOf(&other)
	add(other)
	f.Fuzz(func(t *testing.T, data []byte) {
		var cell ABISample
		copy((*[cellSize]byte)(unsafe.Pointer(&cell))[:], data)
		var s Sample
		reason := decodeSample(&cell, &s)
		if reason >= NumRejects {
			t.Fatalf("reason %d", reason)
		}
		if reason != rejectNone {
			if s != (Sample{}) {
				t.Errorf("rejected for %v and yet %+v", reason, s)
			}
			return
		}
		if s.Trip {
			if s.SignalNs <= 0 || s.CounterNs < 0 || s.Peer < 0 || int(s.Peer) >= s.NRanks || s.Rank < 0 || int(s.Rank) >= s.NRanks || s.Rank == s.Peer ||
				s.Action.Path != actions.PathGIN || s.Action.Word() != cell.Action || s.Bucket != (state.Bucket{}) || s.Untimed || s.EventTimed || s.Captured {
				t.Errorf("%+v gave a put %+v", cell, s)
			}
			return
		}
		bucket, ok := state.BucketOf(s.Bucket.Collective, s.Bytes)
		if !ok || bucket != s.Bucket || (s.SignalNs <= 0) != s.Untimed || s.SignalNs < 0 || s.CounterNs < 0 || s.Rank < 0 || int(s.Rank) >= s.NRanks ||
			s.Action.Word() != cell.Action || s.Ran.Check() != nil ||
			s.Ran.Path != actions.PathDefault && s.Ran.Path != actions.PathCollective && (s.Ran.Path != actions.PathLSA || cell.Flags&SampleLsa == 0) &&
				(s.Ran.Path != actions.PathGIN || cell.Flags&SampleGin == 0) && (s.Ran.Path != actions.PathSymmetric || cell.Flags&SampleSymmetric == 0) {
			t.Errorf("%+v gave %+v", cell, s)
		}
		ours := s.Ran.Path == actions.PathDefault || s.Ran.Path == actions.PathLSA
		if s.Replayed && (s.Untimed || s.Captured || s.HostTimed || s.EventTimed || s.CounterNs > s.SignalNs || s.Seq > math.MaxUint32 || !ours) {
			t.Errorf("%+v gave a replay %+v", cell, s)
		}
	})
}

func BenchmarkDecodeSample(b *testing.B) {
	cell := goodSample()
	var s Sample
	b.ReportAllocs()
	for b.Loop() {
		if decodeSample(&cell, &s) != rejectNone {
			b.Fatal("rejected")
		}
	}
}

// A replay comes out of a ring as what it is, between calls; one that cannot be is counted with its reason.
func TestReplaysInARing(t *testing.T) {
	r := heapRing(t, 8)
	replay := goodSample()
	replayOf(&replay)
	wrong := replay
	wrong.Flags = SampleReplayed // none of our kernels
	for _, s := range []*ABISample{sent(1), &replay, &wrong, sent(2)} {
		put(r.abi, r.cells, s)
	}
	into := make([]Sample, 8)
	n, err := r.Drain(into)
	if err != nil || n != 3 || into[0].Replayed || !into[1].Replayed || into[2].Replayed || into[1].Seq != replay.Seq || into[2].Seq != 2 {
		t.Errorf("%d samples, %v: %+v", n, err, into[:n])
	}
	if s, err := r.Stats(); err != nil || s.Rejected[RejectFlags] != 1 || s.Samples != 3 {
		t.Errorf("%+v, %v", s, err)
	}
}
