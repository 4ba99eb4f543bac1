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

// trustedBatch is how many calls of what is trusted a batch has that is to end that.
const trustedBatch = 3

// toTrust gives what a batch of so many trials must have to end trust, where that keeps in force what would go: calls of what is in force are
// few where all else has settled, one timed in hundreds, and 24 of them were 8,000 calls at up to three times the default's time.
func (g *Guard) toTrust(want, maxTrials int) []actions.Action {
	if g.trusted == 0 || g.approve(g.base) && (want == g.base || !g.approve(want)) {
		return g.missing
	}
	if g.arms.samples[0].n < trustedDefaults {
		g.missing = append(g.missing, actions.Default)
	}
	for range trustedBatch {
		g.missing = append(g.missing, g.arms.set[g.base])
	}
	return g.missing[:min(len(g.missing), maxTrials)]
}

// wearTrust is for a condition that ends. What was delayed at first may look like one, so a third of its calls count; where conditions change
// every few calls trust ends all the same.
func (g *Guard) wearTrust() {
	if g.trusted > 0 && !g.trusts() {
		g.trusted = 0
	}
	g.trusted = max(0, g.trusted-(g.arms.samples[g.base].n+2)/3)
}
