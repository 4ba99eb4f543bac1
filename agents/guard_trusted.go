package agents

import "dynamiccl/actions"

// Keep has a choice that was made before this guard be in force until it can be judged, as over a change of conditions; and another does not
// take its place before so many calls of it (TrustedCalls, or what Trusted gave of an earlier guard), unless it costs by far more.
func (g *Guard) Keep(a actions.Action, trusted int) {
	if i, ok := g.arms.index[a]; ok && i != 0 {
		g.base, g.kept, g.trusted = i, true, trusted
	}
}

// TrustedCalls are wanted of a choice that was measured before the program began, and trustedDefaults of NCCL's default, if that is heard of. A
// program's first calls are delayed by what has no part in them, such as code that GPUs fetch; and what a CUDA graph captures behind
// them it has for good (TestStoredChoiceAtAColdStart).
const (
	TrustedCalls    = 24
	trustedDefaults = 8
)

// Trusted is how many more calls of what is in force Keep wants.
func (g *Guard) Trusted() int { return max(0, g.trusted-g.arms.samples[g.base].n) }

func (g *Guard) trusts() bool {
	s, d := &g.arms.samples[g.base], &g.arms.samples[0]
	if d.n < guardMinDefault { // little may be heard of it at all
		return s.n < g.trusted/2
	}
	if s.n >= latestCalls && s.recent(latestCalls)-d.log() > g.cfg.Hopeless {
		return false
	}
	return s.n < g.trusted || d.n < trustedDefaults && s.n < 3*g.trusted
}
