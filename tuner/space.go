package tuner

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// channelChoices are the channel counts that are tried: the powers of two and 24, as in the recorded sweeps
// (8x H200 NVLink and 4x H200 sockets, NCCL 2.28.9), where the cost over channels is unimodal between them.
var channelChoices = []uint8{1, 2, 4, 8, 16, 24, 32}

// OwnChannels, in the place of a most: NCCL's own number alone.
const OwnChannels = -1

// channels is the most that a choice may name. Where NCCL may ask about an AllGather for broadcasts of a group, ranks answer no number
// (nccltuner/plugin/everywhere.h).
func (m *comm) channels(c actions.Collective) int {
	if m.OwnGathers && c == actions.AllGather {
		return OwnChannels
	}
	return m.MaxChannels
}

// ActionSet lists what may be chosen for a bucket: NCCL's default first, then every algorithm and protocol that NCCL's
// cost tables allow on all ranks, then our own kernels that all ranks can run. Ring and Tree come with a channel count; the
// others keep NCCL's own, which depends on multicast or network hardware that a count must not fight. Where LL is NCCL's
// device kernel it is there once, as deviceLL. maxChannels 0: not known; OwnChannels: all have NCCL's own. On registered memory names decide: namedSet.
func ActionSet(b state.Bucket, marks MarkSet, maxChannels int) []actions.Action {
	if b.Collective.Registered() {
		return namedSet(b, marks)
	}
	set := []actions.Action{actions.Default}
	for algo := range actions.Algorithm(actions.NumAlgorithms) {
		for proto := range actions.Protocol(actions.NumProtocols) {
			a := actions.Action{Path: actions.PathCollective, Algorithm: algo, Protocol: proto}
			if !marks.Has(a) {
				continue
			}
			if proto == actions.LL && marks&MarkDeviceLL != 0 {
				if a == deviceLL {
					set = append(set, a)
				}
				continue
			}
			if algo != actions.Ring && algo != actions.Tree || maxChannels == OwnChannels {
				set = append(set, a)
				continue
			}
			for _, n := range channelChoices {
				if maxChannels > 0 && int(n) > maxChannels {
					break
				}
				a.Channels = n
				set = append(set, a)
			}
		}
	}
	return append(append(set, lsaSet(b, marks)...), ginSet(b, marks)...)
}

// deviceLL stands for all choices of LL where NCCL answers each with one device kernel. Nowhere else but on registered memory does a
// set have a ring without a number of channels.
var deviceLL = actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL}

// sameIn gives a's name in a set: another LL than the set has is the same kernel, if the set's is the device kernel.
func sameIn(set []actions.Action, a actions.Action) actions.Action {
	if a.Path == actions.PathCollective && a.Protocol == actions.LL && slices.Contains(set, deviceLL) && !slices.Contains(set, a) {
		return deviceLL
	}
	return a
}

// overrules says that what ran is not what was asked for. A number of channels or CTAs may be smaller: small calls get fewer.
// A kernel of NCCL's that nobody can name overrules nothing of NCCL's; one of ours says so itself, or did not run.
func overrules(ran, asked actions.Action) bool {
	switch {
	case ran.Ours() || asked.Ours():
		return ran.Kind() != asked.Kind()
	case ran.Path == actions.PathDefault || asked.Path == actions.PathDefault:
		return false
	}
	return ran.Kind() != asked.Kind()
}

// costsIn gives the mean costs that the store has, by their names in a set. What was measured under several names is
// taken together.
func costsIn(set []actions.Action, evidence map[actions.Action]Estimate) map[actions.Action]float64 {
	costs := make(map[actions.Action]float64, len(evidence))
	sum, n := 0.0, 0
	for _, a := range slices.SortedFunc(maps.Keys(evidence), byWord) { // sums of floats depend on their order
		e := evidence[a]
		if same := sameIn(set, a); same != deviceLL {
			costs[same] = e.MeanNs
		} else if e.MeanNs > 0 && e.N > 0 {
			sum += float64(e.N) * math.Log(e.MeanNs)
			n += e.N
			costs[same] = math.Exp(sum / float64(n))
		}
	}
	return costs
}

func byWord(a, b actions.Action) int { return cmp.Compare(a.Word(), b.Word()) }

// Choices is the action set of a bucket: what all ranks can run, as far as it can be measured on communicators of that shape,
// each kernel once; eventTimed: by CUDA events and not by the kernels' own times.
func Choices(b state.Bucket, marks MarkSet, maxChannels int, shape state.Shape, eventTimed bool) []actions.Action {
	return OnRails(measurable(ActionSet(b, marks, maxChannels), shape.Nodes, eventTimed), b, shape)
}

// measurable leaves out what kernel times cannot tell on the communicator. In a tree the thread that stamps them sends up,
// and is done before the result comes down (treeSplit, src/device/all_reduce.h; 4x H200: AllReduce 1 KiB 4.3 of 6.7 us).
// Over a network the receives tell the rest; on one node a tree would look better than it is. NCCL's own choice may be a
// tree there: it then looks too good itself and stays. Of our own kernels NCCL knows nothing. CUDA events tell when a call
// is over, whatever ran.
func measurable(set []actions.Action, nodes int, eventTimed bool) []actions.Action {
	if eventTimed {
		return set
	}
	return slices.DeleteFunc(set, func(a actions.Action) bool {
		return a.Ours() || nodes <= 1 && a.Path == actions.PathCollective && a.Algorithm == actions.Tree
	})
}
