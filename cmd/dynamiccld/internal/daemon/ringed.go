package daemon

import (
	"slices"

	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// ringGrace is how long a process has none before that is said: its ring and a record that it has joined are two files, which
// one look may see apart.
const ringGrace = state.Ns(1e9)

// ringed knows of a communicator which of its processes have had a ring.
type ringed struct {
	had     []nccltuner.Process
	sinceNs state.Ns          // that one has had none; 0: all have
	lacks   nccltuner.Process // it was said of this one
}

func hasRing(rings []*nccltuner.Ring, p nccltuner.Process) bool {
	return slices.ContainsFunc(rings, func(r *nccltuner.Ring) bool { return r.Process() == p })
}

// missing is the pid of a process that has joined and never had a ring, so that nothing it measures is heard; 0: none. It stays said once that
// process has left: `dynamiccld run` asks in the end, when the ranks go one after the other.
func (r *ringed) missing(nowNs state.Ns, ranks []nccltuner.RankView, rings []*nccltuner.Ring) (pid uint32) {
	if r.lacks.PID != 0 && !hasRing(rings, r.lacks) {
		return r.lacks.PID
	}
	r.lacks = nccltuner.Process{}
	var lacks nccltuner.Process
	for _, rank := range ranks {
		p := rank.Process
		switch {
		case p.PID == 0 || slices.Contains(r.had, p):
		case hasRing(rings, p):
			r.had = append(r.had, p)
		default:
			lacks = p
		}
	}
	switch {
	case lacks.PID == 0:
		r.sinceNs = 0
	case r.sinceNs == 0:
		r.sinceNs = nowNs
	}
	if nowNs-r.sinceNs < ringGrace {
		return 0
	}
	r.lacks = lacks
	return lacks.PID
}
