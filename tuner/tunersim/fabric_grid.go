package tunersim

import (
	"math/rand/v2"
	"slices"

	"dynamiccl/actions"
)

// standardChannels are those of the recorded sweeps.
var standardChannels = []uint8{1, 2, 4, 8, 16, 24, 32}

// maxActions is the largest set that a machine offers, the default included.
const maxActions = 120

// makeGrid draws the forced choices of a machine's tables. Two machines of three have the recorded sweeps' grid. The
// others have any: other channels, threads, device paths, choices that are forbidden, 4 to 120 with the default.
func (m *Machine) makeGrid(r draw, transport string) {
	channels, warps, devices, forbidden := standardChannels, []uint8{0}, 0.0, [numPairs]bool{}
	other := r.chance(1.0 / 3)
	if other {
		all := []uint8{1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 48, 64}
		channels = r.some(all, 1+r.IntN(9))
		if r.chance(0.15) {
			channels = []uint8{0} // NCCL's own number: algorithm and protocol are all that is chosen
		}
		if r.chance(0.4) {
			warps = r.some([]uint8{0, 2, 4, 8, 12, 16, 20}, 2+r.IntN(3))
		}
		devices = 0.7
		for i := range forbidden {
			forbidden[i] = r.chance(0.2)
		}
	}
	lsa := transport == "nvlink" && r.chance(devices)
	gin := transport == "rdma" && r.chance(devices)
	nvls := r.chance(devices / 2)
	for c := range actions.Collective(actions.NumAsked) {
		var set []actions.Action
		for _, alg := range []actions.Algorithm{actions.Ring, actions.Tree, actions.PAT, actions.NVLS} {
			ranks, nodes, perNode := ranksOf(m.Shape)
			if _, ok := routeOf(ranks, nodes, perNode, c, alg); !ok || alg == actions.NVLS && !nvls {
				continue
			}
			for proto := range actions.Protocol(actions.NumProtocols) {
				if pair := pairOf(alg, proto); m.ChannelGBs[pair] == 0 || forbidden[pair] {
					continue
				}
				for _, ch := range channels {
					for _, w := range warps {
						set = append(set, actions.Action{Path: actions.PathCollective, Algorithm: alg, Protocol: proto, Channels: ch, Warps: w})
					}
				}
			}
		}
		if lsa {
			for _, ctas := range []uint8{1, 4, 8, 16, 32} {
				set = append(set, actions.Action{Path: actions.PathLSA, Channels: ctas})
			}
		}
		if gin && c != actions.Broadcast && c != actions.Reduce {
			for _, b := range []actions.Backend{actions.BackendGDAKI, actions.BackendProxy} {
				for _, contexts := range []uint8{1, 2, 4, 8} {
					set = append(set, actions.Action{Path: actions.PathGIN, Backend: b, Channels: contexts})
				}
			}
		}
		set = thin(r.Rand, set, maxActions-1)
		for i := 0; len(set) < 3 && i < 3; i++ { // too much was forbidden: rings are always there
			a := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Protocol(i), Channels: channels[0]}
			if !slices.Contains(set, a) {
				set = append(set, a)
			}
		}
		m.grid[c] = set
	}
}

// some keeps n of a sorted list, in order.
func (r draw) some(all []uint8, n int) []uint8 {
	kept := slices.Clone(all)
	for len(kept) > n {
		i := r.IntN(len(kept))
		kept = slices.Delete(kept, i, i+1)
	}
	return kept
}

// thin removes choices at random until n are left.
func thin(rng *rand.Rand, set []actions.Action, n int) []actions.Action {
	for len(set) > n {
		i := rng.IntN(len(set))
		set = slices.Delete(set, i, i+1)
	}
	return set
}

// SetActions replaces the forced choices of a collective; those that the machine cannot run are left out.
func (m *Machine) SetActions(c actions.Collective, set []actions.Action) {
	quiet := Quiet()
	m.grid[c] = nil
	for _, a := range set {
		if _, ok := m.Cost(&quiet, c, 1<<20, a); ok {
			m.grid[c] = append(m.grid[c], a)
		}
	}
}
