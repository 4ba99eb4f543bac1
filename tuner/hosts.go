package tuner

import (
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// Ranks on several hosts: those of this host are heard at once, others later or never (elsewhere.go), and a plan comes into force when all
// hosts have agreed on it, which may take thousands of calls, or never.

// Agreed says which plan is in force on the ranks of a communicator whose hosts agree on it.
type Agreed struct {
	Comm    CommID
	Version uint64
}

// Parted says that hosts have lost each other: what is in force stays, and nothing more can be tried.
type Parted struct{ Comm CommID }

func (Agreed) event() {}
func (Parted) event() {}

// maxRanks is how many bits there are.
const maxRanks = 64

// allRanks has the bits of ranks 0 to n-1.
func allRanks(n int) uint64 { return ^uint64(0) >> (maxRanks - min(max(n, 0), maxRanks)) }

// tells reports whether a rank is among those of a set.
func tells(heard uint64, rank int32) bool { return rank >= 0 && rank < maxRanks && heard>>rank&1 != 0 }

// heard are the ranks whose samples come here.
func (e *CommJoined) heard() uint64 {
	if all := allRanks(e.Shape.Ranks); e.Heard == 0 {
		return all
	} else {
		return e.Heard & all
	}
}

// several says that some ranks are on other hosts.
func (e *CommJoined) several() bool { return e.heard() != allRanks(e.Shape.Ranks) }

// acrossHosts leaves out what ranks on several hosts refuse (nccltuner/hosts/rank.c), with all that is in a plan beside it: all but
// NCCL's algorithms, for calls that its tuners are asked about, and kernels over GIN for these and AllToAll. And what cannot be measured where
// clocks of some ranks are not known: of Broadcast and Reduce a rank may be done long before the last one, so NCCL's default stays.
func acrossHosts(set []actions.Action, c actions.Collective) []actions.Action {
	return slices.DeleteFunc(set, func(a actions.Action) bool {
		return a != actions.Default && (a.Path != actions.PathCollective && !onGIN(a) || a == deviceLL || c == actions.AllToAll && !onGIN(a) || c.Registered() || endsApart(c))
	})
}

// endsApart says that a rank may be done with a call while another one is not.
func endsApart(c actions.Collective) bool { return c == actions.Broadcast || c == actions.Reduce }

// awaits says that a bucket's entry is published and, as far as is known, not in force yet: nobody can have run it.
func (m *comm) awaits(b *bucket) bool {
	return m.several() && b.published && int32(m.agreed-b.since) < 0
}

func (c *Core) agreed(e Agreed) {
	if m := c.comms[e.Comm]; m != nil && m.agreed != uint32(e.Version) {
		m.agreed, m.touched = uint32(e.Version), true
		c.totals.Agreed++
	}
}

func (c *Core) parted(e Parted) {
	if m := c.comms[e.Comm]; m != nil {
		m.parted = true
	}
}

// acrossNote says why a bucket has no other choice than NCCL's default, or why nothing is tried any more; "": neither.
func (m *comm) acrossNote(b state.Bucket) string {
	switch {
	case m.parted:
		return "ranks of several hosts have lost each other: what they agreed on last stays, and nothing more is tried"
	case m.several() && b.Collective.Registered():
		return "on several hosts calls on registered memory keep NCCL's own choice"
	case m.several() && endsApart(b.Collective):
		return "on several hosts a Broadcast or Reduce keeps NCCL's own choice: ranks elsewhere may take longer than those that are heard"
	}
	return ""
}
