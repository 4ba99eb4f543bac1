package tuner

import (
	"dynamiccl/actions"
	"dynamiccl/state"
)

// tripWindow is how many puts of a communicator wait for what the other rank tells. Ranks look twice a second, at up to 256
// calls with 4 contexts and 28 pairs (DYN_GIN_TRIPS of kernels/gin).
const tripWindow = 1 << 15

// Trip is what a rank tells of one put over GIN, and of its peer's answer to it (DYN_SAMPLE_TRIP). A pointer is the event.
type Trip struct {
	Comm       CommID
	Number     uint32 // of the call in its lane, modulo 2^32, the same on all ranks
	InGraph    bool   // the lane of CUDA graphs, else that of calls
	Rank, Peer int32
	Context    uint8
	Action     actions.Action // Path GIN; Channels are the kernel's CTAs, Contexts those that these had; 0: not known
	Bytes      uint64         // put; 0: a signal alone
	CounterNs  state.Ns       // until the source was read; 0: not measured
	SignalNs   state.Ns       // until the peer's answer was here. Invariant: > 0
}

func (*Trip) event() {}

// joinedTrip is one way of a put of which both ranks have told.
type joinedTrip struct {
	linkKey
	number              uint32
	bytes               uint64
	action              actions.Action
	counterNs, signalNs state.Ns
	inGraph             bool
}

// tripKey names a put and the one that came the other way, in the same call. Each backend counts calls by itself.
type tripKey struct {
	number   uint32
	inGraph  bool
	context  uint8
	backend  actions.Backend
	low, top int32
}

// tripJoiner puts both ranks' words on a pair of puts together.
//
// A rank that comes late to a call answers late, and the trip of its peer has the wait in it. Its own has none: the peer has
// been waiting. So of the two the shorter is what the network takes, there and back, and it needs no clock in common.
// Counters are each rank's own.
type tripJoiner struct {
	ranks  int32
	open   map[tripKey]Trip
	queue  []tripKey // in the order in which they were opened: at most tripWindow, then a ring
	oldest int
	both   [2]joinedTrip
}

// add takes one word and gives both ways when it is the second of a pair. The slice is good until the next add.
func (j *tripJoiner) add(t *TripTotals, e *Trip) []joinedTrip {
	if e.Rank < 0 || e.Peer < 0 || e.Rank >= j.ranks || e.Peer >= j.ranks || e.Rank == e.Peer || e.SignalNs <= 0 || e.CounterNs < 0 {
		t.Rejected++
		return nil
	}
	key := tripKey{e.Number, e.InGraph, e.Context, e.Action.Backend, min(e.Rank, e.Peer), max(e.Rank, e.Peer)}
	first, known := j.open[key]
	switch {
	case !known:
		j.begin(t, key, e)
		return nil
	case first.Rank == e.Rank || first.Action != e.Action:
		t.Rejected++
		return nil
	}
	delete(j.open, key)
	signal := min(first.SignalNs, e.SignalNs)
	for i, w := range [2]*Trip{&first, e} {
		j.both[i] = joinedTrip{linkKey{w.Rank, w.Peer, w.Context, w.Action.Backend}, w.Number, w.Bytes, w.Action, w.CounterNs, signal, w.InGraph}
	}
	return j.both[:]
}

func (j *tripJoiner) begin(t *TripTotals, key tripKey, e *Trip) {
	if j.open == nil {
		j.open = map[tripKey]Trip{}
	}
	if len(j.queue) < tripWindow {
		j.queue = append(j.queue, key)
	} else {
		if _, waits := j.open[j.queue[j.oldest]]; waits {
			delete(j.open, j.queue[j.oldest])
			t.Incomplete++
		}
		j.queue[j.oldest] = key
		j.oldest = (j.oldest + 1) % tripWindow
	}
	j.open[key] = *e
}
