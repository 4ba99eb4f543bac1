package state

import (
	"fmt"
	"math/bits"

	"dynamiccl/actions"
)

// Ns is a duration or an instant in nanoseconds. Instants come from the caller's monotonic clock.
type Ns int64

// NumBuckets is the number of size buckets; the last one takes every larger size (DYN_NUM_BUCKETS).
const NumBuckets = 48

// SizeBucket is floor(log2(bytes)). Zero bytes have no bucket.
func SizeBucket(bytes uint64) (int, bool) {
	if bytes == 0 {
		return 0, false
	}
	return min(bits.Len64(bytes)-1, NumBuckets-1), true
}

// Bucket is what is chosen for separately inside one communicator: a collective and a size bucket.
type Bucket struct {
	Collective actions.Collective
	Log2Bytes  uint8
}

// BucketOf gives the bucket of a call; ok is false for calls that are never tuned.
func BucketOf(c actions.Collective, bytes uint64) (b Bucket, ok bool) {
	i, ok := SizeBucket(bytes)
	return Bucket{c, uint8(i)}, ok && c < actions.NumCollectives
}

func (b Bucket) String() string {
	return fmt.Sprintf("%s %s", b.Collective, FormatBytes(1<<b.Log2Bytes))
}

// FormatBytes writes a size with a binary unit: "64 KiB".
func FormatBytes(n uint64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i, v := 0, float64(n)
	for v >= 1024 && i < len(units)-1 {
		v /= 1024
		i++
	}
	return fmt.Sprintf("%.4g %s", v, units[i])
}

// Transports that are told apart, as tables, learners and people name them. The last two connect nodes.
var Transports = []string{"nvlink", "pcie", "socket", "rdma"}

// UnknownTransport is what tables and people call one that is not known; in a Shape it is "".
const UnknownTransport = "unknown"

// Shape is the part of a communicator that choices depend on. Comparable, hence a map key.
type Shape struct {
	Ranks     int
	Nodes     int
	Transport string // one of Transports; "" when not known
}

func (s Shape) String() string {
	text := fmt.Sprintf("%d ranks, %d nodes", s.Ranks, s.Nodes)
	if s.Transport != "" {
		text += ", " + s.Transport
	}
	return text
}

// Topology is what learners are told of a communicator's machine.
type Topology struct {
	Shape
	NICs int // a node; 0: none or not known
}

// Observation is one collective call of the whole group under one action.
//
// Counter and signal are the group's critical path with the wait for late ranks taken out: the last rank to arrive
// waits for no one, so the shortest duration over ranks is the cost of communicating (docs/design.md, decision 6).
type Observation struct {
	AtNs      Ns
	Seq       uint64         // getCollInfo call of the communicator
	Action    actions.Action // asked for
	Ran       actions.Action // what the profiler says ran; Path is PathDefault when not known
	Bytes     uint64
	CounterNs Ns     // local completion; 0: not measured
	SignalNs  Ns     // remote visibility; Invariant: > 0
	SkewNs    Ns     // longest minus shortest duration over ranks, >= 0
	FirstRank int32  // rank with the shortest duration, that is, the last to arrive
	Plan      uint32 // low 32 bits of the version of the plan that was in force; 0: none, or not known
	EntryCall uint8  // of its plan entry, from 1, saturates; 0: it has none, or not known
	Idle      bool   // some rank's host issued it so late that its GPU waited: part of what it took is the way of a launch
	Unseen    uint16 // calls of its bucket since the last one observed that nobody measured: all of the choice in force
}

// CostNs is what a choice is charged: the time until the data is visible.
func (o Observation) CostNs() Ns { return o.SignalNs }
