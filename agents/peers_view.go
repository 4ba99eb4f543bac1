package agents

import (
	"math"

	"dynamiccl/state"
)

// reach is how many size octaves away another bucket's measurements still count.
const reach = 6

// peerView is another bucket as one learner sees it.
type peerView struct {
	arms  *arms
	at    []int32 // by action of the learner's own set: index in arms' set, -1: not there
	delta float64 // log2 of its size over ours
	same  bool    // collective
}

// peerViews are the buckets near enough to tell something.
type peerViews struct {
	views []peerView
	seen  int // buckets of Peers when views was made
	made  []*arms
}

// refresh finds peers that came or were replaced.
func (v *peerViews) refresh(t *Task) {
	if t.Peers == nil {
		return
	}
	stale := v.seen != len(t.Peers.order)
	for i := range v.made {
		stale = stale || t.Peers.arms[t.Peers.order[i]] != v.made[i]
	}
	if !stale {
		return
	}
	v.seen = len(t.Peers.order)
	v.views, v.made = v.views[:0], v.made[:0]
	for _, b := range t.Peers.order {
		a := t.Peers.arms[b]
		v.made = append(v.made, a)
		if b == t.Bucket || !near(b, t.Bucket) {
			continue
		}
		view := peerView{arms: a, at: make([]int32, len(t.Set)), delta: float64(b.Log2Bytes) - float64(t.Bucket.Log2Bytes),
			same: b.Collective == t.Bucket.Collective}
		for i, action := range t.Set {
			view.at[i] = -1
			if j, ok := a.index[action]; ok {
				view.at[i] = int32(j)
			}
		}
		v.views = append(v.views, view)
	}
}

func near(a, b state.Bucket) bool {
	d := math.Abs(float64(a.Log2Bytes) - float64(b.Log2Bytes))
	return a.Collective == b.Collective && d <= reach || d == 0
}

// evidence writes what smaller, larger and other collectives' buckets measured of action i: a weighted relative log cost
// and its weight for each, [6]. It gives the least relative cost among them.
func (v *peerViews) evidence(i int, dst []float64) (best float64) {
	var sum, weight [3]float64
	for k := range v.views {
		p := &v.views[k]
		j := p.at[i]
		if j < 0 || p.arms.samples[j].n == 0 || p.arms.samples[0].n == 0 {
			continue
		}
		rel := clip(p.arms.samples[j].log()-p.arms.samples[0].log(), 3)
		n := float64(p.arms.samples[j].n)
		w := n / (1 + n) * closeness(p.delta/2)
		at := 0
		switch {
		case !p.same:
			at = 2
		case p.delta > 0:
			at = 1
		}
		sum[at] += w * rel
		weight[at] += w
		if n >= 2 {
			best = min(best, rel)
		}
	}
	for at := range sum {
		if weight[at] > 0 {
			total := min(1, weight[at])
			dst[2*at], dst[2*at+1] = total*sum[at]/weight[at], total
		}
	}
	return best
}
