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
	loadTrips = 32  // of a number of CTAs and contexts, from which its mean counts
	loadFlat  = 0.9 // saturated: so many times as many CTAs take 0.9 times that many times as long; as many over more contexts, 0.9 times
	maxLoads  = 64  // of a link: sizes times numbers of CTAs and contexts
)

// loadKey is what loads a link: puts of so many bytes by so many CTAs at once, each over one of so many contexts.
type loadKey struct {
	bytes          uint64
	ctas, contexts uint8 // contexts 0: not known, and as many whatever the CTAs
}

// fewer says that a link had no more of anything by k than by o, and less of something.
func (k loadKey) fewer(o loadKey) bool {
	return k.bytes == o.bytes && k != o && k.ctas <= o.ctas && k.contexts <= o.contexts
}

// load is the geometric mean of what these take, there and back.
type load struct {
	n   int
	log float64
	at  uint64 // link.seen with the latest
}

func (l *load) mean() float64 { return math.Exp(l.log / float64(l.n)) }

// Saturation is where more CTAs, or more contexts at once, stop to move more: each of twice as many puts takes nearly twice
// as long, or each of as many no less over more contexts.
type Saturation struct {
	Bytes                  uint64 // of each put
	CTAs, More             uint8
	Contexts, MoreContexts uint8   // of these; 0: not known
	MeanNs, MoreNs         float64 // there and back, with so many CTAs
}

func (s Saturation) String() string {
	if s.CTAs == s.More {
		return fmt.Sprintf("puts of %s by %d CTAs take %.1f us there and back over %d contexts and %.1f over %d: more contexts move nothing faster",
			state.FormatBytes(s.Bytes), s.CTAs, s.MeanNs/1e3, s.Contexts, s.MoreNs/1e3, s.MoreContexts)
	}
	what := "contexts"
	if s.Contexts != 0 && s.Contexts == s.MoreContexts {
		what = "CTAs"
	}
	return fmt.Sprintf("puts of %s take %.1f us there and back with %d CTAs and %.1f with %d: beyond %d more %s move nothing faster",
		state.FormatBytes(s.Bytes), s.MeanNs/1e3, s.CTAs, s.MoreNs/1e3, s.More, s.CTAs, what)
}

// weigh takes in one put, and says where it now shows that the link is saturated by fewer CTAs or contexts than was known, or at all.
func (l *link) weigh(t *joinedTrip) (Saturation, bool) {
	if t.bytes == 0 || t.action.Channels == 0 {
		return Saturation{}, false
	}
	k := loadKey{t.bytes, t.action.Channels, t.action.Contexts}
	own := l.loads[k]
	if own == nil {
		if len(l.loads) == maxLoads && !l.unload() {
			return Saturation{}, false
		}
		own = &load{}
		l.loads[k] = own
	}
	own.n, own.at = own.n+1, l.seen
	own.log += math.Log(float64(t.signalNs))
	if own.n%loadTrips != 0 {
		return Saturation{}, false
	}
	found := false
	for _, other := range slices.SortedFunc(maps.Keys(l.loads), byLoad) {
		few, more := k, other
		if other.fewer(k) {
			few, more = other, k
		}
		if !few.fewer(more) || l.loads[other].n < loadTrips {
			continue
		}
		fewNs, moreNs := l.loads[few].mean(), l.loads[more].mean()
		known, is := l.saturated[k.bytes]
		if moreNs/fewNs < loadFlat*float64(more.ctas)/float64(few.ctas) || is && byLoad(loadKey{k.bytes, known.CTAs, known.Contexts}, few) <= 0 {
			continue
		}
		l.saturated[k.bytes] = Saturation{k.bytes, few.ctas, more.ctas, few.contexts, more.contexts, fewNs, moreNs}
		found = true
	}
	return l.saturated[k.bytes], found
}

// unload makes room where a program puts ever other sizes: of those that came least often the one that did so the longest ago goes, unless
// it counts already.
func (l *link) unload() bool {
	var least loadKey
	n, at := loadTrips, uint64(0)
	for k, own := range l.loads {
		if own.n < n || own.n == n && own.at < at {
			least, n, at = k, own.n, own.at
		}
	}
	if n == loadTrips {
		return false
	}
	delete(l.loads, least)
	return true
}

func byLoad(a, b loadKey) int {
	return cmp.Or(cmp.Compare(a.ctas, b.ctas), cmp.Compare(a.contexts, b.contexts))
}
