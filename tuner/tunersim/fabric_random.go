package tunersim

import (
	"fmt"
	"math"
	"math/rand/v2"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// draw has the distributions that machines are drawn from. They are broad on purpose: a policy must not learn one
// machine. Medians come from the constants' sources, spreads are ours unless a comment says otherwise.
type draw struct{ *rand.Rand }

func (r draw) uniform(lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }
func (r draw) logUniform(lo, hi float64) float64 {
	return lo * math.Exp(r.Float64()*math.Log(hi/lo))
}
func (r draw) logNormal(median, sigma float64) float64 {
	return median * math.Exp(sigma*r.NormFloat64())
}
func (r draw) chance(p float64) bool { return r.Float64() < p }

func pick[T any](r draw, of ...T) T { return of[r.IntN(len(of))] }

// RandomMachine draws a machine of any transport.
func RandomMachine(rng *rand.Rand) Machine {
	return RandomMachineOf(state.Transports[rng.IntN(len(state.Transports))], rng)
}

// RandomMachineOf draws a machine of one transport. Same source, same machine.
func RandomMachineOf(transport string, rng *rand.Rand) Machine {
	r := draw{rng}
	m := Machine{Generation: Generation(r.IntN(int(numGenerations)))}
	m.NCCL = pick(r, "2.21.5", "2.23.4", "2.26.2", "2.27.7", "2.28.9", "2.30.7", "2.32.3")
	m.shape(r, transport)
	m.Name = fmt.Sprintf("synthetic-%s-%dx%d-%08x", transport, m.Shape.Nodes, m.Shape.Ranks/m.Shape.Nodes, rng.Uint32())
	m.links(r, transport)
	m.pairs(r, transport)
	m.software(r, transport)
	m.devices(r, transport)
	m.errors(r, transport)
	m.makeGrid(r, transport)
	return m
}

// shape: up to 64 ranks on up to 8 nodes; NVLink domains wider than a host exist, and are rare.
func (m *Machine) shape(r draw, transport string) {
	nodes, perNode := 1, pick(r, 2, 3, 4, 4, 6, 8, 8, 8)
	switch transport {
	case "nvlink":
		if m.Generation >= Hopper && r.chance(0.25) {
			perNode = pick(r, 16, 32, 64)
		}
	case "socket", "rdma":
		nodes, perNode = pick(r, 2, 2, 2, 3, 4, 4, 6, 8, 8), pick(r, 1, 1, 2, 2, 4, 4, 8, 8)
	}
	m.Shape = state.Shape{Ranks: nodes * perNode, Nodes: nodes, Transport: transport}
	switch transport {
	case "rdma":
		m.NICs = min(pick(r, 1, 1, 2, 4, 8), max(perNode, 1))
	case "socket":
		m.NICs = pick(r, 1, 1, 1, 2, 4)
	default:
		m.NICs = pick(r, 0, 0, 1, 4, 8)
	}
	m.ShownNICs = m.NICs
	if r.chance(0.3) {
		m.ShownNICs = 0
	}
}

func (m *Machine) links(r draw, transport string) {
	// Rings reach some 0.8 of NVLink's data sheet rate; PCIe generations 3 to 5 move 12, 24 and 48 GB/s at most.
	if transport == "nvlink" || transport != "pcie" && r.chance(0.6) {
		m.LinkGBs = r.logNormal(0.8*linkGBs[m.Generation], 0.15)
	} else {
		m.LinkGBs = r.logNormal(0.7*pick(r, 12.0, 24, 48), 0.2)
	}
	// Ethernet of 10 to 200 Gb/s, of which TCP reaches a half to nearly all; InfiniBand of 100 to 400 Gb/s.
	switch transport {
	case "socket":
		m.NetGBs = pick(r, 1.25, 3.125, 6.25, 12.5, 25) * float64(m.NICs) * r.uniform(0.5, 0.95)
		m.NetChanGBs = r.logNormal(3, 0.5) // one TCP connection keeps about one core busy
		m.MaxChannels = pick(r, 2.0, 2, 2, 4, 4, 8)
	case "rdma":
		m.NetGBs = pick(r, 12.5, 25, 25, 50) * float64(m.NICs) * r.uniform(0.75, 0.95)
		m.NetChanGBs = r.logNormal(12, 0.4)
		m.MaxChannels = min(32, max(2, float64(m.NICs*channelsPerNIC))*pick(r, 1.0, 2, 2, 4, 8))
	case "pcie":
		m.MaxChannels = pick(r, 2.0, 4, 4, 8, 16)
	default:
		m.MaxChannels = pick(r, 8.0, 12, 16, 24, 24, 32, 32)
	}
}

// pairs draws what each algorithm and protocol costs; each pair has its own multipliers, so no machine follows NCCL's
// table exactly.
func (m *Machine) pairs(r draw, transport string) {
	launch, hop, fence := r.logNormal(1, 0.25), r.logNormal(1, 0.25), r.logNormal(1, 0.2)
	channel, wire := r.logNormal(0.7, 0.3), r.logNormal(1, 0.1) // what channels reach of the most that they can
	oneWay := r.logNormal(1000, 0.6)                            // RDMA: about a microsecond
	if transport == "socket" {
		oneWay = r.logNormal(9000, 0.55) // TCP through two kernels
	}
	intra := ncclPCIHopNs
	if m.LinkGBs > 60 {
		intra = ncclNVLinkHopNs
	}
	for _, alg := range []actions.Algorithm{actions.Tree, actions.Ring, actions.NVLS, actions.PAT} {
		for proto := range actions.NumProtocols {
			pair := pairOf(alg, actions.Protocol(proto))
			wireShare := ncclWireShare[alg][proto]
			if wireShare == 0 || alg == actions.NVLS && (transport != "nvlink" || m.Generation < Hopper) {
				continue
			}
			fenced := 1.0
			if actions.Protocol(proto) == actions.Simple {
				fenced = fence
			}
			m.BaseNs[pair] = r.logNormal(launch*ncclBaseNs[alg][proto], 0.15)
			m.IntraHopNs[pair] = r.logNormal(hop*fenced*intra[alg][proto], 0.2)
			net := ncclNetHopNs[alg][proto]
			if m.Shape.Ranks == m.Shape.Nodes && alg == actions.Ring { // "with ppn=1 latencies are fully exposed"
				net = ncclNetHopNs[actions.Tree][proto]
			}
			net += oneWay
			if actions.Protocol(proto) == actions.Simple {
				net += r.uniform(0, 1) * oneWay // "the flush extra latency"
			}
			m.InterHopNs[pair] = r.logNormal(fenced*net, 0.2)
			m.ChannelGBs[pair] = r.logNormal(channel*ncclChannelGBs[m.Generation][proto], 0.2)
			m.WireShare[pair] = min(r.logNormal(wire*wireShare, 0.15), 1.1)
		}
	}
}

func (m *Machine) software(r draw, transport string) {
	ringSimple := pairOf(actions.Ring, actions.Simple)
	m.Cores = r.logUniform(8, 192)
	m.QuantumNs = r.logUniform(5e5, 4e6) // EEVDF's base slice is 0.75 ms times 1 + log2 of the cores, at most 3 ms; ticks are 1 to 4 ms
	m.Overlap = r.uniform(1, 2.2)
	m.ChunkBytes = r.logNormal(simpleChunkBytes, 0.3)
	m.ChainShare = r.uniform(0.02, 1) // NCCL itself counts one hop where channels are alike and all of them where not (tuning.cc)
	m.ChannelNs = r.logUniform(5, 80)
	m.Gamma = r.logUniform(0.005, 0.06)
	m.SatChannels = m.LinkGBs / m.ChannelGBs[ringSimple]
	switch transport {
	case "socket":
		m.ProxyNs = r.logNormal(3000, 0.8) // system calls for send and receive, one channel after the other
		m.Gamma = r.logUniform(0.01, 0.2)
		m.SatChannels = float64(m.NICs*channelsPerNIC) * r.logNormal(1, 0.4)
	case "rdma":
		m.ProxyNs = r.logNormal(120, 0.7) // posting a work request and polling for its completion
		m.Gamma = r.logUniform(0.01, 0.2)
		m.SatChannels = float64(m.NICs*channelsPerNIC) * r.logNormal(1.5, 0.5)
	}
	m.SatChannels = max(m.SatChannels, 1)
	m.NVLinkWarps, m.NetWarps = r.logUniform(8, 24), r.logUniform(3, 14)
	m.WarpLoss, m.WarpNs = r.logUniform(0.03, 0.4), r.uniform(0, 60)
}

func (m *Machine) devices(r draw, transport string) {
	switch transport {
	case "nvlink":
		m.LSA = LSAParams{LaunchNs: r.logNormal(lsaLaunchNs, 0.3), BarrierNs: r.logNormal(lsaBarrierNs, 0.4),
			CTAGBs: m.ChannelGBs[pairOf(actions.Ring, actions.Simple)] * r.uniform(0.5, 1.5)}
	case "rdma":
		trip := r.logNormal(1, 0.15)
		m.GIN = GINParams{LaunchNs: r.logNormal(lsaLaunchNs, 0.3), PutNs: r.uniform(100, 600), ContextGBs: r.logNormal(10, 0.4)}
		m.GIN.RoundTripNs[actions.BackendGDAKI] = trip * gdakiRoundTripNs
		m.GIN.RoundTripNs[actions.BackendProxy] = trip * (gdakiRoundTripNs + (proxyRoundTripNs-gdakiRoundTripNs)*r.logNormal(1, 0.5))
	}
}

// errors draws what no formula explains: wobble, how wrong NCCL's beliefs are, how well a table's medians repeat. Forced
// choices win within 2% on NVLink and 1.0 to 2.1 over sockets (shared design, section 7): NCCL knows the first well.
func (m *Machine) errors(r draw, transport string) {
	amp, bias, tilt, refused := 0.03, 0.06, 0.01, 0.02
	m.scatter = scatter{0.012, 0.005, 0.3}
	switch transport {
	case "pcie":
		amp, bias, tilt, refused = 0.05, 0.15, 0.02, 0.1
		m.scatter = scatter{0.02, 0.01, 0.3}
	case "rdma":
		amp, bias, tilt, refused = 0.06, 0.25, 0.03, 0.05
		m.scatter = scatter{0.03, 0.02, 0.3}
	case "socket":
		amp, bias, tilt, refused = 0.08, 0.4, 0.05, 0.1
		m.scatter = scatter{0.05, 0.06, 0.3}
	}
	m.scatter.sigma = r.logNormal(m.scatter.sigma, 0.3)
	amp = r.logNormal(amp, 0.4)
	for i := range m.wobble {
		m.wobble[i] = r.wave(amp)
		m.belief.bias[i], m.belief.tilt[i] = bias*r.NormFloat64(), tilt*r.NormFloat64()
		if r.chance(refused) && i != pairOf(actions.Ring, actions.Simple) {
			m.belief.bias[i] = 2 * never
		}
	}
	for i := range m.device {
		m.device[i] = r.wave(amp)
	}
	if transport == "pcie" || transport == "socket" { // LL128 needs links that keep 128 bytes together (tuning.cc)
		for _, alg := range []actions.Algorithm{actions.Tree, actions.Ring} {
			if r.chance(0.5) {
				m.belief.bias[pairOf(alg, actions.LL128)] = 2 * never
			}
		}
	}
}

// wave has periods of 4 to 12 octaves of bytes and 2 to 8 of channels.
func (r draw) wave(amp float64) (w wave) {
	for i := range w.amp {
		w.amp[i] = amp * r.NormFloat64()
		w.perByte[i] = 2 * math.Pi / r.uniform(4, 12)
		w.perChannel[i] = 2 * math.Pi / r.uniform(2, 8)
		w.phase[i] = r.uniform(0, 2*math.Pi)
	}
	return w
}
