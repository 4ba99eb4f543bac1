package agents

import "math"

// jump looks for changes that need no chart: calls in a row that are all far off, to one side, what was measured of their
// actions. The detector warms up on a dozen calls of an action, and while a learner tries one action after the other none
// may get as many: a change by a factor would go on being compared across.
type jump struct {
	far int // latest calls in a row that were far off: positive above, negative below
}

// A delayed call in a hundred is noise; three in a row are not.
const (
	jumpLeast  = 0.35 // log cost
	jumpSigmas = 5
	jumpCalls  = 3
)

// observe takes in how far a call was from what was measured of its action; true when this is a jump.
func (j *jump) observe(off float64, a *arms) bool {
	if math.Abs(off) <= jumpLeast { // nearly every call: the noise need not be known
		j.far = 0
		return false
	}
	switch limit := max(jumpLeast, jumpSigmas*a.sigma()); {
	case off > limit:
		j.far = max(j.far, 0) + 1
	case off < -limit:
		j.far = min(j.far, 0) - 1
	default:
		j.far = 0
	}
	if j.far < jumpCalls && j.far > -jumpCalls {
		return false
	}
	j.far = 0
	return true
}

// Jumped reports that the latest calls jumped, once: whoever asks says so to the detector and to the guard (Shift).
func (g *Guard) Jumped() bool {
	jumped := g.jumped
	g.jumped = false
	return jumped
}

// Doubts reports that the latest call was far off, and too few before it to say that conditions changed.
func (g *Guard) Doubts() bool { return g.jump.far != 0 }

// compare is to be called before a call of action i is counted.
func (g *Guard) compare(i int, costNs float64) {
	if s := &g.arms.samples[i]; s.n > 0 && g.jump.observe(math.Log(costNs)-s.log(), g.arms) {
		g.jumped = true
	}
}
