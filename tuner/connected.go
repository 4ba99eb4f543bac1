package tuner

import "dynamiccl/actions"

// connected are NCCL's algorithms that a communicator's calls have run, by their bit. NCCL connects an algorithm in the first call that
// runs it, which takes memory of the GPU for good and fails where there is none left: 256 MiB a communicator on 2x H200, both releases
// (docs/design.md, decision 2). A program that runs near the end of its memory must not meet that in a trial.
type connected uint32

// ran takes in what a call has run.
func (c *connected) ran(a actions.Action) {
	if a.Path == actions.PathCollective {
		*c |= 1 << a.Algorithm
	}
}

// connects reports that a trial of a would have NCCL take memory of the GPU for an algorithm that the program has not run yet. Between
// nodes connections are the host's memory, or not known to be the GPU's.
func (m *comm) connects(c actions.Collective, a actions.Action) bool {
	if a == deviceLL && !c.Registered() {
		return false // a device kernel, whatever its name
	}
	return a.Path == actions.PathCollective && m.connected&(1<<a.Algorithm) == 0 && m.Shape.Nodes == 1
}
