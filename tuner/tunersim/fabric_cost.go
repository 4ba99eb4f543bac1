package tunersim

import (
	"math"

	"dynamiccl/actions"
)

// Cost is one call without noise.
type Cost struct {
	CounterNs float64 // local completion: the send buffer may be used again
	SignalNs  float64 // remote visibility: the receiver may compute
}

// call is what is asked for.
type call struct {
	collective actions.Collective
	bytes      float64
	log2Bytes  float64
}

func callOf(c actions.Collective, bytes uint64) call {
	return call{c, float64(bytes), math.Log2(float64(bytes))}
}

// Cost gives a forced choice's cost in a condition, wobble included and CPU waits at their mean; false when the machine
// cannot run it.
func (m *Machine) Cost(cond *Condition, c actions.Collective, bytes uint64, a actions.Action) (Cost, bool) {
	p, ok := m.parts(cond, callOf(c, bytes), a)
	return p.cost(m, 1), ok
}

// parts of a cost. CPU waits are kept apart because they come in whole quanta.
type parts struct {
	latencyNs  float64
	transferNs float64
	fixedNs    float64 // overlaps with nothing, on counter and signal alike
	waitNs     float64 // mean wait for cores
	remoteNs   float64 // on the signal only
	lastNs     float64 // the last hop and its chunk: what the signal has and the counter has not
	wobble     float64 // log
}

// cost joins the parts; wait scales the wait for cores.
func (p *parts) cost(m *Machine, wait float64) Cost {
	joined, log := p.latencyNs+p.transferNs, p.wobble
	if m.Overlap > 1 && p.latencyNs > 0 && p.transferNs > 0 { // the p-norm, in logarithms: this is what tables spend their time on
		joined = max(p.latencyNs, p.transferNs)
		log += math.Log1p(math.Exp(-m.Overlap*math.Abs(math.Log(p.latencyNs/p.transferNs)))) / m.Overlap
	}
	waited := 0.0
	if p.waitNs > 0 {
		waited = math.Round(p.waitNs*wait/m.QuantumNs) * m.QuantumNs
	}
	done := joined*math.Exp(log) + p.fixedNs
	last := min(p.lastNs, 0.6*done)
	return Cost{CounterNs: done - last + waited, SignalNs: done + waited + p.remoteNs}
}

func (m *Machine) parts(cond *Condition, c call, a actions.Action) (parts, bool) {
	switch a.Path {
	case actions.PathCollective:
		return m.collective(cond, c, a)
	case actions.PathLSA:
		return m.lsa(cond, c, a)
	case actions.PathGIN:
		return m.gin(cond, c, a)
	}
	return parts{}, false
}

// channelsUsed is what a call really uses of the channels that it asks for; 0 asks for NCCL's own number.
func (m *Machine) channelsUsed(c call, ranks int, a actions.Action) float64 {
	ch := float64(a.Channels)
	if a.Channels == 0 {
		ch = m.ncclChannels(c, ranks, a.Algorithm, a.Protocol)
	}
	traffic := c.bytes * trafficPerByte(c.collective, ranks)
	if a.Protocol == actions.LL {
		traffic *= 4
	}
	return max(1, min(ch, m.MaxChannels, math.Ceil(traffic/minTraffic)))
}

func (m *Machine) collective(cond *Condition, c call, a actions.Action) (parts, bool) {
	ranks, nodes, perNode := ranksOf(m.Shape)
	r, ok := routeOf(ranks, nodes, perNode, c.collective, a.Algorithm)
	pair := pairOf(a.Algorithm, a.Protocol)
	if !ok || m.ChannelGBs[pair] == 0 {
		return parts{}, false
	}
	ch := m.channelsUsed(c, ranks, a)
	intraHop, interHop := m.IntraHopNs[pair], 0.0
	chunk := c.bytes / ch / float64(ranks)
	channelGBs := m.ChannelGBs[pair] * cond.SMShare
	warpLoss, warpNs := m.warps(a.Warps, a.Protocol, nodes)
	channelGBs /= warpLoss

	linkShare := m.WireShare[pair]
	over := 1 + m.Gamma*max(0, ch/m.SatChannels-1)
	linkGBs := m.LinkGBs * linkShare
	if nodes == 1 {
		linkGBs *= cond.LinkShare / over
	}
	// Stages run at the same time, so the slowest counts, with a soft edge (a fourth-power mean).
	moved := r.traffic * c.bytes
	t4 := fourth(moved/(ch*channelGBs)) + fourth(moved/linkGBs)
	p := parts{wobble: m.wobble[pair].at(c.collective, c.log2Bytes, math.Log2(ch))}
	hops := 1.0
	if r.chain {
		hops = m.ChainShare
	}
	if nodes > 1 {
		moved := r.netTraffic * c.bytes
		net := m.NetGBs * linkShare * cond.LinkShare / over
		crowd := cond.crowd(ch, a.Protocol)
		t4 += fourth(moved*crowd/net) + fourth(moved*crowd/(ch*m.NetChanGBs*linkShare*cond.LinkShare))
		// A node's proxy threads serve channels one after the other and share the cores.
		interHop = m.InterHopNs[pair]*cond.LatencyTimes*crowd + m.ProxyNs*(ch-1)*(1+ch*float64(perNode)/(8*m.Cores))
		p.waitNs = hops * r.inter * cond.CPUWait * m.QuantumNs * (1 + ch*float64(perNode)/m.Cores)
		p.fixedNs = r.inter * cond.ConstantNs
	} else {
		intraHop *= cond.LatencyTimes
		p.fixedNs = cond.ConstantNs
	}
	p.transferNs = math.Sqrt(math.Sqrt(t4))
	if a.Protocol == actions.Simple {
		chunk = min(c.bytes/ch, m.ChunkBytes)
		slowest := channelGBs
		if nodes > 1 {
			slowest = min(channelGBs, m.NetChanGBs*cond.LinkShare)
		}
		p.transferNs += hops * r.fill * chunk / slowest
		p.remoteNs = cond.RemoteNs // the receiver must flush and fence before it may look
	}
	p.latencyNs = m.BaseNs[pair]*cond.LaunchTimes + r.fixedNs + hops*(r.intra*intraHop+r.inter*interHop) +
		(ch-1)*m.ChannelNs + ch*cond.ComputeNs + warpNs
	p.remoteNs += cond.RemoteNs + cond.RemoteShare*p.transferNs
	p.lastNs = max(intraHop, interHop) + min(chunk, m.ChunkBytes)/channelGBs
	return p, true
}

// warps gives the loss of bandwidth and the latency of a forced number of warps against NCCL's own number. NVLink
// channels and channels bound by a NIC have each their own optimum (seed 001, pattern 5).
func (m *Machine) warps(asked uint8, proto actions.Protocol, nodes int) (loss, ns float64) {
	if asked == 0 {
		return 1, 0
	}
	best, own := m.NVLinkWarps, ncclThreads[proto]/actions.WarpThreads
	if nodes > 1 {
		best = m.NetWarps
	}
	off := func(w float64) float64 { l := math.Log2(w / best); return 1 + m.WarpLoss*l*l }
	return off(float64(asked)) / off(own), (float64(asked) - own) * m.WarpNs
}

// lsaCrossings are how often something crosses a link behind something else: the data of each shot, and in bulk, which has
// no flags beside it, a barrier behind. Only AllReduce has two shots.
func lsaCrossings(c actions.Collective, k actions.Kernel) float64 {
	shots := 1.0
	if c == actions.AllReduce && k != actions.OneShot {
		shots = 2
	}
	if k == actions.Bulk {
		return 2 * shots
	}
	return shots
}

// runsLSA says whether a collective has a kernel.
func runsLSA(c actions.Collective, k actions.Kernel) bool {
	return k == actions.OneShot || c == actions.AllReduce || k == actions.Bulk && (c == actions.AllGather || c == actions.ReduceScatter)
}

// lsa is load/store over NVLink: in one shot everyone writes all it has to all others, in two each adds up a share and
// writes its sums to them. Lines are half flag: twice the bytes.
func (m *Machine) lsa(cond *Condition, c call, a actions.Action) (parts, bool) {
	ranks, nodes, _ := ranksOf(m.Shape)
	if nodes > 1 || m.LSA.CTAGBs == 0 || !runsLSA(c.collective, a.Kernel) {
		return parts{}, false
	}
	n, ctas := float64(ranks), max(float64(a.Channels), 1)
	if a.Channels == 0 {
		ctas = min(max(1, c.bytes/(16<<10)), 32)
	}
	rate := func(moved float64) float64 {
		return math.Sqrt(math.Sqrt(fourth(moved/(ctas*m.LSA.CTAGBs*cond.SMShare)) + fourth(moved/(m.LinkGBs*cond.LinkShare*0.85))))
	}
	launch := m.LSA.LaunchNs*cond.LaunchTimes + ctas*cond.ComputeNs
	barrier := m.LSA.BarrierNs * cond.LatencyTimes * (1 + 0.05*n)
	p := parts{latencyNs: launch + lsaCrossings(c.collective, a.Kernel)*barrier, wobble: m.device[0].at(c.collective, c.log2Bytes, math.Log2(ctas)), fixedNs: cond.ConstantNs,
		remoteNs: cond.RemoteNs, lastNs: barrier}
	moved := c.bytes
	switch {
	case c.collective == actions.AllReduce && a.Kernel == actions.OneShot:
		moved *= n - 1
	case c.collective == actions.AllReduce:
		moved *= 2 * (n - 1) / n
	case c.collective == actions.AllGather || c.collective == actions.ReduceScatter:
		moved *= (n - 1) / n
	}
	if a.Kernel != actions.Bulk {
		moved *= 2
	}
	p.transferNs = rate(moved)
	p.remoteNs += cond.RemoteShare * p.transferNs
	return p, true
}

// gin is put with signal: every rank puts its share to every other one, for AllReduce twice. CTAs have a context each, unless the
// action has them share some. What a context adds is a queue of its own: it moves bytes beside the others, posts its puts at the
// same time as they do, and is one more that the NICs serve in turn, or the CPU's thread. CTAs take multiprocessors, whatever they share.
func (m *Machine) gin(cond *Condition, c call, a actions.Action) (parts, bool) {
	ranks, nodes, perNode := ranksOf(m.Shape)
	if nodes < 2 || m.GIN.ContextGBs == 0 {
		return parts{}, false
	}
	rounds, n, ctas := 1.0, float64(ranks), max(float64(a.Channels), 1)
	contexts := ctas
	if a.Contexts != 0 {
		contexts = min(ctas, float64(a.Contexts))
	}
	if c.collective == actions.AllReduce {
		rounds = 2
	}
	trip := m.GIN.RoundTripNs[a.Backend]
	if a.Backend == actions.BackendNone {
		trip = m.GIN.RoundTripNs[actions.BackendGDAKI]
	}
	p := parts{wobble: m.device[1].at(c.collective, c.log2Bytes, math.Log2(ctas))}
	if a.Backend == actions.BackendProxy {
		p.waitNs = rounds * cond.CPUWait * m.QuantumNs * (1 + contexts*float64(perNode)/m.Cores)
		trip += m.ProxyNs * (contexts - 1) * float64(perNode) / m.Cores
	} else {
		p.fixedNs = rounds * cond.ConstantNs // what fell back is the direct path
	}
	hop := trip / 2 * cond.LatencyTimes
	crowd := cond.crowd(ctas, actions.Simple)
	over := 1 + m.Gamma*max(0, contexts/m.SatChannels-1)
	moved := c.bytes * (n - 1) / n
	t4 := fourth(moved*crowd/(contexts*m.GIN.ContextGBs*cond.SMShare)) + fourth(float64(perNode)*moved*crowd*over/(m.NetGBs*cond.LinkShare))
	p.transferNs = rounds * math.Sqrt(math.Sqrt(t4))
	p.latencyNs = m.GIN.LaunchNs*cond.LaunchTimes + rounds*(hop+(n-1)/contexts*m.GIN.PutNs) + ctas*cond.ComputeNs
	p.remoteNs = cond.RemoteNs + cond.RemoteShare*p.transferNs
	p.lastNs = hop / 2
	return p, true
}

func fourth(x float64) float64 { x *= x; return x * x }
