package tuner

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"dynamiccl/state"
)

const (
	loadTrips = 32  // of a number of CTAs, from which its mean counts
	loadFlat  = 0.9 // saturated: so many times as many CTAs take 0.9 times that many times as long
	maxLoads  = 64  // of a link: sizes times numbers of CTAs
)

// loadKey is what loads a link: puts of so many bytes by so many CTAs at once, each over one of the contexts.
type loadKey struct {
	bytes uint64
	ctas  uint8
}

// load is the geometric mean of what these take, there and back.
type load struct {
	n   int
	log float64
}

func (l *load) mean() float64 { return math.Exp(l.log / float64(l.n)) }

// Saturation is where more CTAs, and so more contexts at once, stop to move more: each of twice as many puts takes nearly twice
// as long.
type Saturation struct {
	Bytes          uint64 // of each put
	CTAs, More     uint8
	MeanNs, MoreNs float64 // there and back, with so many CTAs
}

func (s Saturation) String() string {
	return fmt.Sprintf("puts of %s take %.1f us there and back with %d CTAs and %.1f with %d: beyond %d more contexts move nothing faster",
		state.FormatBytes(s.Bytes), s.MeanNs/1e3, s.CTAs, s.MoreNs/1e3, s.More, s.CTAs)
}

// weigh takes in one put, and says where it now shows that the link is saturated by fewer CTAs than was known, or at all.
func (l *link) weigh(t *joinedTrip) (Saturation, bool) {
	if t.bytes == 0 || t.action.Channels == 0 {
		return Saturation{}, false
	}
	k := loadKey{t.bytes, t.action.Channels}
	own := l.loads[k]
	if own == nil {
		if len(l.loads) == maxLoads {
			return Saturation{}, false
		}
		own = &load{}
		l.loads[k] = own
	}
	own.n++
	own.log += math.Log(float64(t.signalNs))
	if own.n%loadTrips != 0 {
		return Saturation{}, false
	}
	found := false
	for _, other := range slices.SortedFunc(maps.Keys(l.loads), func(a, b loadKey) int { return cmp.Compare(a.ctas, b.ctas) }) {
		few, more, fewNs, moreNs := k.ctas, other.ctas, own.mean(), 0.0
		with := l.loads[other]
		if other.bytes != k.bytes || other.ctas == k.ctas || with.n < loadTrips {
			continue
		}
		if moreNs = with.mean(); few > more {
			few, more, fewNs, moreNs = more, few, moreNs, fewNs
		}
		known, is := l.saturated[k.bytes]
		if moreNs/fewNs < loadFlat*float64(more)/float64(few) || is && known.CTAs <= few {
			continue
		}
		l.saturated[k.bytes] = Saturation{k.bytes, few, more, fewNs, moreNs}
		found = true
	}
	return l.saturated[k.bytes], found
}
