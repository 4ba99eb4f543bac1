package tunersim

import (
	"math/bits"

	"dynamiccl/actions"
)

// route counts what an algorithm does on a shape.
type route struct {
	intra, inter float64 // dependent steps inside and between nodes
	traffic      float64 // bytes through a rank's link for each byte of the call
	netTraffic   float64 // and through a node's network
	fill         float64 // stages that wait for a whole chunk of Simple before the last one starts
	chain        bool    // one pipeline from or to the root
	fixedNs      float64
}

func log2ceil(n int) int { return bits.Len(uint(n - 1)) }

// routeOf gives false for what NCCL does not offer: trees for AllReduce only, PAT for AllGather and ReduceScatter with
// one rank a node, NVLS inside one node, rings for all (src/graph/tuning.cc).
func routeOf(ranks, nodes, perNode int, c actions.Collective, a actions.Algorithm) (route, bool) {
	n, half := float64(ranks), c == actions.AllGather || c == actions.ReduceScatter
	switch {
	case a == actions.Ring:
		steps := n - 1
		r := route{traffic: (n - 1) / n}
		if c == actions.AllReduce {
			steps, r.traffic = 2*steps, 2*r.traffic
		} else if !half { // Broadcast and Reduce are one pipeline: everything through every link
			r.traffic, r.fill, r.chain = 1, n-2, true
		}
		r.netTraffic = r.traffic
		if nodes > 1 { // a chunk's path of so many edges of the ring, at worst
			r.inter = float64((int(steps)*nodes + ranks - 1) / ranks)
		}
		r.intra = steps - r.inter
		return r, true
	case a == actions.Tree && c == actions.AllReduce:
		r := route{intra: 2 * float64(perNode-1), inter: 2 * float64(log2ceil(nodes)), traffic: 2}
		r.fill = max(r.intra+r.inter-1, 0)
		// Two nodes: each half of the data goes up one way and down the other. More: up once and down twice for the half
		// that a node is inside of, up once for the half that it is a leaf of.
		r.netTraffic = 2
		if nodes == 2 {
			r.netTraffic = 1
		}
		return r, true
	case a == actions.PAT && half && perNode == 1 && nodes > 1:
		return route{inter: float64(log2ceil(nodes)), traffic: (n - 1) / n, netTraffic: (n - 1) / n, fixedNs: patLinearNs * n}, true
	case a == actions.NVLS && nodes == 1 && (half || c == actions.AllReduce):
		if half {
			return route{intra: 1, traffic: (n - 1) / n}, true
		}
		return route{intra: 1, traffic: 1}, true
	}
	return route{}, false
}

// hops is the length of a choice's chain of dependent messages; NCCL's default counts as a ring.
func hops(ranks, nodes int, c actions.Collective, a actions.Action) int {
	alg := actions.Ring
	switch a.Path {
	case actions.PathCollective:
		alg = a.Algorithm
	case actions.PathLSA, actions.PathGIN, actions.PathSymmetric:
		if c == actions.AllReduce {
			return 2
		}
		return 1
	}
	r, ok := routeOf(ranks, nodes, max(ranks/nodes, 1), c, alg)
	if !ok {
		return 1
	}
	return max(int(r.intra+r.inter), 1)
}

// trafficPerByte is ncclFuncTrafficPerByte of src/enqueue.cc.
func trafficPerByte(c actions.Collective, ranks int) float64 {
	switch c {
	case actions.AllReduce:
		return 2
	case actions.AllGather, actions.ReduceScatter:
		return float64(ranks)
	}
	return 1
}
