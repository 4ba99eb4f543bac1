package agents

import (
	"math"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// How far an action's log cost over the default at one size is from that at another, after the prior's own difference:
// a part that all actions share (NCCL's default is another choice there) and a part of each. Standard deviations at the
// same size in another collective, and what every octave of size adds. From actions up to twice the default in the
// tables recorded on 8x H200 NVLink and 2-node sockets, quiet and loaded (NCCL 2.28.9), rounded: two octaves away they
// are 0.1 and 0.2 on NVLink, 0.3 and 0.25 on sockets. Factors of two in any of them moved the cost over 64 calls by less
// than the noise of six seeds (0.003 of the oracle's).
const (
	peerCommon       = 0.20
	peerCommonOctave = 0.05
	peerOwn          = 0.15
	peerOwnOctave    = 0.06
	peerReach        = 6    // octaves; beyond, a bucket says next to nothing
	peerFloor        = 0.10 // peers err alike: however many agree, this much doubt stays
)

// peerTogether is how many calls of a bucket two buckets' detectors may lie apart and mean the same change.
const peerTogether = 24

// peerMost is the greatest relative log cost that is believed of a peer, and the greatest gain: nothing is five times
// faster than NCCL's default. A bucket that has not noticed a change yet compares an action of today with a default of
// yesterday, and who believed it would try the same and be fooled alike.
const peerMost = 1.5

// peerEvidence is what the other buckets of a communicator say about the actions of one.
type peerEvidence struct {
	peers  *Peers
	bucket state.Bucket
	shape  state.Shape
	own    *arms
	feat   []features
	views  []peerOpinion

	precision []float64 // by action of own, of relative; 0: nothing known
	relative  []float64 // expected log cost over the default
	told      []opinion // scratch: of one peer
}

// peerOpinion is one peer as seen from here.
type peerOpinion struct {
	arms         *arms
	at           []int16   // own action to the peer's, -1: it has none
	prior        []float32 // own prior mean minus the peer's
	common, each float64   // variances
}

// newPeerEvidence is for the bucket of a task; m is its model, for the prior means.
func newPeerEvidence(t Task, own *arms, m *costModel) *peerEvidence {
	return &peerEvidence{peers: t.Peers, bucket: t.Bucket, shape: t.Topology.Shape, own: own, feat: m.feat,
		precision: make([]float64, len(t.Set)), relative: make([]float64, len(t.Set)), told: make([]opinion, 0, len(t.Set))}
}

// look finds peers that joined, or were replaced, since.
func (e *peerEvidence) look() {
	for k, b := range e.peers.order {
		a := e.peers.arms[b]
		if k < len(e.views) {
			if e.views[k].arms == a {
				continue
			}
			e.views[k] = e.view(b, a)
			continue
		}
		e.views = append(e.views, e.view(b, a))
	}
}

// view weighs a peer by its distance; one that is too far, and the bucket itself, get no actions.
func (e *peerEvidence) view(b state.Bucket, a *arms) peerOpinion {
	v := peerOpinion{arms: a}
	d := math.Abs(float64(b.Log2Bytes) - float64(e.bucket.Log2Bytes))
	if a == e.own || d > peerReach {
		return v
	}
	v.common = peerCommon*peerCommon + peerCommonOctave*peerCommonOctave*d*d
	v.each = peerOwn*peerOwn + peerOwnOctave*peerOwnOctave*d*d
	v.at, v.prior = make([]int16, len(e.own.set)), make([]float32, len(e.own.set))
	top, w := topsOf(a.set, b.Log2Bytes), bandwidthBound(b.Log2Bytes)
	for i, action := range e.own.set {
		j, ok := a.index[action]
		if !ok || action == actions.Default {
			j = -1
		}
		v.at[i] = int16(j)
		v.prior[i] = float32(e.feat[i].mean - featuresOf(action, top, w).mean - kernelMean(action, b, e.shape))
	}
	return v
}

// gather fills precision and relative; sigma is the noise of single calls.
func (e *peerEvidence) gather(sigma float64) {
	clear(e.precision)
	clear(e.relative)
	if e.peers == nil {
		return
	}
	e.look()
	for k := range e.views {
		if v := &e.views[k]; v.at != nil && v.arms.samples[0].n > 0 && e.current(v.arms) {
			e.take(v, sigma)
		}
	}
	for i, p := range e.precision {
		if p > 0 {
			e.relative[i] /= p
			e.precision[i] = 1 / (1/p + peerFloor*peerFloor)
		}
	}
}

// relative is what a peer's measurements let expect of an own action, base being the peer's default; false when it has
// none to be believed.
func (v *peerOpinion) relative(i int, base float64) (relative float64, ok bool) {
	j := v.at[i]
	if j < 0 || v.arms.samples[j].n == 0 {
		return 0, false
	}
	measured := v.arms.samples[j].log() - base
	return min(peerMost, measured) + float64(v.prior[i]), measured >= -peerMost
}

// current reports whether a peer has measured in the same condition, as far as can be told: since conditions changed
// here, they must have changed there too. What it measured before and since is mixed otherwise.
func (e *peerEvidence) current(peer *arms) bool {
	return e.own.shifts == 0 || peer.shifts > 0 && peer.began+peerTogether*len(e.views) >= e.own.began
}

// take adds what one peer says. The part that all its actions share is estimated first, from actions measured on both
// sides.
func (e *peerEvidence) take(v *peerOpinion, sigma float64) {
	each := v.each
	common := v.common + v.arms.variance(0, sigma)
	shift, weight := 0.0, 1/common
	own, base, ownBase := e.own.samples, v.arms.samples[0].log(), e.own.samples[0].log()
	e.told = e.told[:0]
	for i, j := range v.at {
		theirs, ok := v.relative(i, base)
		if !ok {
			continue
		}
		noise := v.arms.variance(int(j), sigma)
		e.told = append(e.told, opinion{i, theirs, noise})
		if own[0].n > 0 && own[i].n > 0 {
			w := 1 / (each + noise + e.own.variance(i, sigma))
			shift += w * (own[i].log() - ownBase - theirs)
			weight += w
		}
	}
	shift /= weight
	for _, o := range e.told {
		w := 1 / (1/weight + each + o.noise)
		e.precision[o.i] += w
		e.relative[o.i] += w * (o.relative + shift)
	}
}

// opinion is what one peer says of own action i, with the variance of its measurements.
type opinion struct {
	i               int
	relative, noise float64
}

// now is how many calls all buckets have seen: the clock that says which measurements are of a time.
func (p *Peers) now() int {
	sum := 0
	if p != nil {
		sum = p.gone // a clock that falls has what was measured long ago be of now
		for _, b := range p.order {
			sum += p.arms[b].ever
		}
	}
	return sum
}
