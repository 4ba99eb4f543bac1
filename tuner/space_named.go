package tuner

import (
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// namedSet lists what NCCL can be told by name to run on registered memory, NCCL's default first, and our own kernels last. A
// name has no number of channels. Whether NCCL has what it names is found out by asking: what it refuses leaves the marks.
func namedSet(b state.Bucket, marks MarkSet) []actions.Action {
	set := []actions.Action{actions.Default}
	for algo := range actions.Algorithm(actions.NumAlgorithms) {
		for proto := range actions.Protocol(actions.NumProtocols) {
			if a := (actions.Action{Path: actions.PathCollective, Algorithm: algo, Protocol: proto}); named(algo, proto) && marks.Has(a) {
				set = append(set, a)
			}
		}
	}
	for s := actions.SymmetricLL; s < actions.NumSymmetric; s++ {
		if a := (actions.Action{Path: actions.PathSymmetric, Symmetric: s}); s.Names(b.Collective) && marks.Has(a) {
			set = append(set, a)
		}
	}
	return append(set, lsaSet(b, marks)...)
}

// named says what has a bit of its own in the marks of registered memory; symmetric kernels have those of the others.
func named(a actions.Algorithm, p actions.Protocol) bool {
	return a == actions.Tree || a == actions.Ring || p == actions.Simple && (a == actions.NVLS || a == actions.NVLSTree)
}

// misnamedCalls is how often a name may bring about another choice than it says: one that stands for two is NCCL's to pick from, call
// by call.
const misnamedCalls = 3

// misnamed takes in that a call ran something else. On registered memory an action is its name alone, so it is no choice there once
// that has happened often enough.
func (c *Core) misnamed(m *comm, b *bucket, a actions.Action) {
	if !b.Collective.Registered() || slices.Contains(m.misnamed[b.Bucket], a) { // of a plan from before that was known
		return
	}
	b.misnamed = append(b.misnamed, a)
	times := 0
	for _, other := range b.misnamed {
		if other == a {
			times++
		}
	}
	if times < misnamedCalls {
		return
	}
	if m.misnamed == nil {
		m.misnamed = map[state.Bucket][]actions.Action{}
	}
	m.misnamed[b.Bucket] = append(m.misnamed[b.Bucket], a)
	b.silence.forget(a) // that nothing was heard under this name is no reason to try it again
	m.put(c.refit(m, b, b.allowed))
}

// without leaves out what is known to be misnamed, of which nobody hears, or what was refused when it was measured.
func (m *comm) without(b state.Bucket, s *silence, set []actions.Action) []actions.Action {
	refused := m.refused(b)
	if len(m.misnamed[b])+len(s.quiet)+len(refused) == 0 {
		return set
	}
	return slices.DeleteFunc(slices.Clone(set), func(a actions.Action) bool {
		return slices.Contains(m.misnamed[b], a) || s.has(a) || slices.Contains(refused, a)
	})
}
