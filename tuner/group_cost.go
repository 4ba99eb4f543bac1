package tuner

import (
	"dynamiccl/actions"
	"dynamiccl/state"
)

// Why a group's times are no cost.
type flaw uint8

const (
	sound      flaw = iota
	unclocked       // the clocks are not known yet, and the shortest duration says nothing
	incoherent      // instants that contradict each other
)

// cost fills in what the call took: from the last rank's start to the last rank's end, and the launch, which kernel times
// leave out, or less what events take between them. Without instants it is the shortest duration over ranks, which is the
// same where every rank waits for the last one's data.
func (g *group) cost(o *state.Observation) flaw {
	if g.instants {
		o.CounterNs, o.FirstRank = g.last.counterNs, g.last.rank
		o.SignalNs, o.SkewNs = state.Ns(g.endNs-g.last.startNs), state.Ns(g.last.startNs-g.startNs)
		if !g.coherent() {
			return incoherent
		}
	} else {
		o.CounterNs, o.SignalNs, o.FirstRank = g.shortest.counterNs, g.shortest.signalNs, g.shortest.rank
		o.SkewNs = g.longestNs - g.shortest.signalNs
		if (g.kernels || g.events) && g.oneWay() {
			return unclocked
		}
	}
	g.shorten(o)
	if g.kernels {
		launch := launchNs(g.ran)
		o.SignalNs += launch
		if o.CounterNs != 0 {
			o.CounterNs += launch
		}
	}
	if g.events {
		between := g.added()
		o.SignalNs -= min(between, o.SignalNs*2/3)
		o.CounterNs -= min(between, o.CounterNs*2/3)
	}
	return sound
}

// added is what timing it has added to the call.
func (g *group) added() state.Ns {
	if !g.events {
		return 0
	}
	return eventsNs + earlyNs(g.bucket, g.ran)
}

// eventsNs is what lies between the two events of a timed call and is not there without them. Measured on 4x H200 over
// NVLink, NCCL 2.28.9, as samples less CUDA events' time of the same calls back to back and not watched: 1.9 to 2.2 us
// from 1 KiB on.
const eventsNs = 2_000

// earlyNs is what events take besides from kernels that begin while the one before them in the stream ends: an event lies
// between. Measured likewise on 2x H200, 1 KiB to 4 MiB (docs/figures/gpu-samples-2gpus-2026-11-22.jsonl): of our kernels over
// load and store 1.8 to 2.0 us, of NCCL's symmetric ones (2.32.3) 1.5 to 1.7, of its others (2.28.9) 1.4 to 1.6 from 16 channels on
// and 0.0 up to 8. Charged with it, our 2.9 us of 1 KiB were as good as the 4.6 us of a symmetric kernel. Since a timed kernel of ours leaves a
// stamp in the host's memory it ends 0.8 to 1.1 us later, alike on all collectives and sizes (2x H100, 2.28.9 and 2.32.3:
// docs/figures/gpu-samples-2gpus-h100-2026-11-27-35b18687.points.jsonl).
//
// NCCL's AllToAll, which nothing names either, has a channel for each 64 KiB of the whole buffer on one node (an eighth of NCCL_P2P_NVL_CHUNKSIZE,
// addP2pToPlan, src/enqueue.cc, 2.28.9): 0.05 to 0.2 us up to 64 KiB there, and 1.4 to 1.5 of 1 MiB.
func earlyNs(b state.Bucket, ran actions.Action) state.Ns {
	c := b.Collective
	switch {
	case ran.Path == actions.PathLSA:
		return 1_900 + 950
	case ran.Path == actions.PathSymmetric, ran == actions.Default && c.Plain() != actions.AllToAll: // symmetric kernels on other memory have no name
		return 1_600
	case ran.Path == actions.PathCollective && ran.Channels >= 16, ran == actions.Default && c == actions.AllToAll && b.Log2Bytes >= 20:
		return 1_500
	}
	return 0
}

// What instants over NVLink may contradict themselves by: the clocks' errors, and how far apart ranks end (4x H200: at
// most a tenth of the cost).
const (
	clockErrorNs   = 2_000
	endsApartNs    = 50_000
	endsApartTimes = 4
)

// coherent reports whether one call can have taken these times: where every rank needs every other's data none ends
// before the last one starts, and without a network, whose delays are anybody's, all kernels end together. Times that are
// another call's (a profiler thread of NCCL that came late) fail here. Events are of their own call for certain, so for
// them the second rule would only throw away what is unusual.
func (g *group) coherent() bool {
	if g.network && !g.events || (g.events || g.ran.Path == actions.PathCollective) && g.oneWay() {
		return true
	}
	after := g.firstEnd - g.last.startNs
	return after >= -clockErrorNs && (g.events || g.endNs-g.firstEnd <= endsApartTimes*max(0, after)+endsApartNs)
}

// launchNs is what a call costs beside its kernel's own time: launch and kernel boundary. Measured on 4x H200 as CUDA
// events' time of back-to-back calls less samples' (docs/design.md, decision 6): 4.3 to 4.9 us for NCCL's ring and tree
// kernels up to 4 MiB, 3.3 to 3.6 us for its device kernels, which have no name of an algorithm.
func launchNs(ran actions.Action) state.Ns {
	if ran.Path == actions.PathCollective {
		return 4_600
	}
	return 3_400
}

// oneWay says that a rank may be done before data of the last one to arrive could have reached it: the root of a
// broadcast, the leaves of a reduction; and, as its kernel's time misses the way down, a tree's root. Events miss nothing.
func (g *group) oneWay() bool {
	c := g.bucket.Collective
	return endsApart(c) || !g.events && g.ran.Algorithm != actions.Ring
}
