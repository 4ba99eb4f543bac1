package agents

import "dynamiccl/actions"

// rival is what a change of conditions may have put in the place of what was best before, though everything measured until then speaks
// against it. What runs shows that its own cost has moved and nothing of how others' have; and what is remembered of them is taken to have
// moved alike, so a learner that weighs a trial by what is expected of it never makes one. So each is tried once, and the rest follows from what
// is measured.
type rival struct {
	at   int   // of the set
	left uint8 // proposals that may still have it: a trial may be lost, or be turned down by a guard
}

// rivalProposals is how often a rival that was not measured is proposed.
const rivalProposals = 2

// rivalsOf appends the rivals of an action. Kernels on GIN have them, since how many CTAs and contexts pay is a matter of how busy NICs are:
// the same with other contexts, or flat where it is hierarchical and the other way round, and the fewest and the most CTAs of its kind.
// Between ends that are measured the estimate (moved) knows where to look. Of kernels over NVLink they cost more than they find in the
// changes that were recorded (models/README.md).
func rivalsOf(dst []rival, set []actions.Action, w int) []rival {
	if set[w].Path != actions.PathGIN {
		return dst
	}
	alike := set[w] // but for its contexts, or for being flat
	alike.Contexts, alike.Flat = 0, false
	few, many := w, w
	for i, a := range set {
		if a.Kind() == set[w].Kind() {
			if a.Channels < set[few].Channels {
				few = i
			}
			if a.Channels > set[many].Channels {
				many = i
			}
		}
		if a.Contexts, a.Flat = 0, false; a == alike && i != w {
			dst = append(dst, rival{i, rivalProposals})
		}
	}
	for _, end := range [...]int{few, many} {
		if end != w {
			dst = append(dst, rival{end, rivalProposals})
		}
	}
	return dst
}

// challenge notes what was best in the condition that has just ended, and its rivals.
func (k *known) challenge() {
	k.rivals = k.rivals[:0]
	if len(k.memory.regimes) > 0 {
		k.former = k.memory.regimes[0].winner()
		k.rivals = rivalsOf(k.rivals, k.set, k.former)
	}
}

// challenged reports whether rivals of what was best before mean anything: not before that was measured in this condition itself, and not where
// it has become hopeless, for then the path has failed, with any number of CTAs, and each trial of it may be as dear as a hundred calls.
func (k *known) challenged() bool {
	if len(k.rivals) == 0 || k.arms.samples[k.former].n == 0 {
		return false
	}
	base := float64(k.memory.regimes[0].logNs[0])
	if k.arms.samples[0].n > 0 {
		base = k.arms.samples[0].log()
	}
	return k.arms.samples[k.former].log()-base < DefaultGuardConfig().Hopeless
}

// appendRivals adds at most room trials of rivals that were not measured yet: in batches as many of each as a guard wants of a choice.
func (k *known) appendRivals(trials []actions.Action, room int) []actions.Action {
	if !k.challenged() {
		return trials
	}
	times := 1
	if room > 1 {
		times = guardMinChoice
	}
	for i := range k.rivals {
		r := &k.rivals[i]
		if r.left == 0 || k.arms.samples[r.at].n > 0 || len(trials)+times > room {
			continue
		}
		r.left--
		for range times {
			trials = append(trials, k.set[r.at])
		}
	}
	return trials
}
