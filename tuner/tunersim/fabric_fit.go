package tunersim

import (
	"math"
	"slices"

	"dynamiccl/actions"
)

// FitMachine finds the machine whose quiet costs are nearest to a table's in the logarithm. Every parameter starts where
// its source puts it and is held there loosely, so that what the table does not show stays plausible; the number of
// channels of the communicator, which NCCL cuts larger choices to, is the one of a few that fits best. Wobble stays
// zero: what the formula cannot explain is the report's error, and the machine's scatter.
func FitMachine(t *Table) (Machine, FitReport) {
	rows := collectRows(t)
	source := sourceMachine(t)
	var best Machine
	var report FitReport
	quiet := Quiet()
	for i, channels := range []float64{2, 4, 8, 16, 24, 32} {
		m := source
		m.MaxChannels = channels
		m.fit(source, rows, 8)
		if r := m.report(&quiet, t, rows); i == 0 || r.RobustError < report.RobustError {
			best, report = m, r
		}
	}
	best.fit(source, rows, 40)
	report = best.report(&quiet, t, rows)
	best.learnBelief(t)
	best.scatter = scatter{sigma: report.RMSError}
	for _, p := range t.points {
		best.SetActions(p.collective, p.order)
	}
	return best, best.report(&quiet, t, rows)
}

// fit moves the parameters that the rows show from where they are; the source's stay their priors.
func (m *Machine) fit(source Machine, rows []fitRow, steps int) {
	quiet, ps := Quiet(), m.parameters(rows)
	for i, p := range source.parameters(rows) {
		ps[i].prior = p.prior
	}
	leastSquares(ps, func(out []float64, pair int) { m.residuals(&quiet, rows, out, pair) }, len(rows), steps)
}

// FitCondition finds how a table of the same machine differs from quiet: few parameters that a condition has, the machine
// stays. The table's name of the condition says which of them may move.
func FitCondition(m Machine, t *Table) (Condition, FitReport) {
	c := Quiet()
	c.Name = t.Condition
	var ps []parameter
	free := func(v *float64, start, sigma float64) {
		*v = start
		ps = append(ps, parameter{v, math.Log(start), sigma, allRows})
	}
	switch t.Condition {
	case "network-load":
		free(&c.LinkShare, 0.7, 0.7)
		free(&c.LatencyTimes, 1.2, 0.5)
		free(&c.Crowding, 0.03, 1)
		free(&c.Chunky, 0.1, 1)
	case "cpu-load":
		free(&c.CPUWait, 4, 2)
		free(&c.LaunchTimes, 1.2, 0.3)
	case "remote-side":
		free(&c.RemoteNs, 3000, 1.5)
		free(&c.RemoteShare, 0.1, 1)
	case "backend-fallback":
		free(&c.ConstantNs, 3000, 1.5)
	case "compute-load":
		free(&c.SMShare, 0.8, 0.4)
		free(&c.LaunchTimes, 1.2, 0.4)
		free(&c.ComputeNs, 100, 1.5)
	default:
		free(&c.LatencyTimes, 1, 0.3)
	}
	rows := collectRows(t)
	leastSquares(ps, func(out []float64, pair int) { m.residuals(&c, rows, out, pair) }, len(rows), 30)
	return c, m.report(&c, t, rows)
}

// fitRow is a measured row ready for the model.
type fitRow struct {
	call
	bytes uint64
	a     actions.Action
	log   float64 // of the measured nanoseconds
}

// collectRows lists the forced choices that the model knows; the default, symmetric kernels and
// calls on registered memory are not among them.
func collectRows(t *Table) []fitRow {
	var rows []fitRow
	for _, r := range t.Rows() {
		if r.Action.Path == actions.PathDefault || r.Action.Path == actions.PathSymmetric || r.Collective.Registered() {
			continue
		}
		rows = append(rows, fitRow{callOf(r.Collective, r.Bytes), r.Bytes, r.Action, math.Log(r.SignalNs)})
	}
	return rows
}

// residuals are log model over measured, of one pair's rows or of all; a row that the machine cannot run has none.
func (m *Machine) residuals(c *Condition, rows []fitRow, out []float64, pair int) {
	for i := range rows {
		if a := rows[i].a; pair != allRows && (a.Path != actions.PathCollective || pairOf(a.Algorithm, a.Protocol) != pair) {
			continue
		}
		out[i] = 0
		if p, ok := m.parts(c, rows[i].call, rows[i].a); ok {
			wait := p.waitNs // not in whole quanta: a fit needs a slope
			p.waitNs = 0
			out[i] = math.Log(p.cost(m, 0).SignalNs+wait) - rows[i].log
		}
	}
}

// sourceMachine has the shape of a table and every constant at its source's value or its distribution's median.
func sourceMachine(t *Table) Machine {
	m := Machine{Name: t.Machine, NCCL: t.NCCL, Shape: t.Shape, NICs: max(t.NICs, 1), ShownNICs: t.NICs, Generation: Hopper,
		LinkGBs: 0.8 * linkGBs[Hopper], NetGBs: 6, NetChanGBs: 3, SatChannels: 12, Gamma: 0.02, ChannelNs: 20, ProxyNs: 3000, Cores: 40,
		QuantumNs: 1.5e6, Overlap: 1.5, ChainShare: 0.3, ChunkBytes: simpleChunkBytes, NVLinkWarps: 14, NetWarps: 6.5, WarpLoss: 0.1, WarpNs: 30,
		LSA: LSAParams{LaunchNs: lsaLaunchNs, BarrierNs: lsaBarrierNs, CTAGBs: 25},
		GIN: GINParams{LaunchNs: lsaLaunchNs, PutNs: 250, ContextGBs: 10}}
	m.GIN.RoundTripNs[actions.BackendGDAKI], m.GIN.RoundTripNs[actions.BackendProxy] = gdakiRoundTripNs, proxyRoundTripNs
	oneWay, intra := 9000.0, ncclNVLinkHopNs
	switch t.Shape.Transport {
	case "pcie":
		m.LinkGBs, m.SatChannels, intra = 17, 2, ncclPCIHopNs
	case "rdma":
		m.NetGBs, m.NetChanGBs, m.ProxyNs, oneWay = 25*float64(m.NICs), 12, 120, 1000
		m.SatChannels = float64(3 * m.NICs)
	case "socket":
		m.SatChannels = float64(channelsPerNIC * m.NICs)
	}
	for _, alg := range []actions.Algorithm{actions.Tree, actions.Ring, actions.NVLS, actions.PAT} {
		for proto := range actions.NumProtocols {
			if ncclWireShare[alg][proto] == 0 {
				continue
			}
			pair := pairOf(alg, actions.Protocol(proto))
			m.BaseNs[pair] = ncclBaseNs[alg][proto]
			m.IntraHopNs[pair] = max(intra[alg][proto], 100)
			m.InterHopNs[pair] = ncclNetHopNs[alg][proto] + oneWay
			m.ChannelGBs[pair] = 0.7 * ncclChannelGBs[Hopper][proto]
			m.WireShare[pair] = ncclWireShare[alg][proto]
		}
	}
	return m
}

// parameters are what the rows can say something about. Bandwidths of links and what proxies cost may be anything;
// NCCL's constants are trusted to about half.
func (m *Machine) parameters(rows []fitRow) []parameter {
	var ps []parameter
	pair := allRows
	free := func(sigma float64, vs ...*float64) {
		for _, v := range vs {
			if *v > 0 {
				ps = append(ps, parameter{v, math.Log(*v), sigma, pair})
			}
		}
	}
	has := func(f func(a actions.Action) bool) bool {
		return slices.ContainsFunc(rows, func(r fitRow) bool { return f(r.a) })
	}
	network := m.Shape.Nodes > 1
	for alg := range actions.Algorithm(actions.NumAlgorithms) {
		for proto := range actions.Protocol(actions.NumProtocols) {
			if !has(func(a actions.Action) bool {
				return a.Path == actions.PathCollective && a.Algorithm == alg && a.Protocol == proto
			}) {
				continue
			}
			pair = pairOf(alg, proto)
			free(0.4, &m.BaseNs[pair], &m.IntraHopNs[pair])
			free(0.25, &m.WireShare[pair])
			free(0.5, &m.ChannelGBs[pair])
			if network {
				free(1, &m.InterHopNs[pair])
			}
		}
	}
	pair = allRows
	free(0.3, &m.Overlap)
	free(0.7, &m.ChunkBytes)
	free(1, &m.Gamma, &m.ChannelNs)
	free(0.7, &m.SatChannels)
	if slices.ContainsFunc(rows, func(r fitRow) bool {
		return r.collective == actions.Broadcast || r.collective == actions.Reduce
	}) {
		free(1, &m.ChainShare)
	}
	if network {
		free(1.5, &m.NetGBs, &m.ProxyNs)
		free(0.7, &m.NetChanGBs)
	} else {
		free(1, &m.LinkGBs)
	}
	if has(func(a actions.Action) bool { return a.Warps != 0 }) {
		free(0.5, &m.NVLinkWarps, &m.NetWarps, &m.WarpLoss, &m.WarpNs)
	}
	if has(func(a actions.Action) bool { return a.Path == actions.PathLSA }) {
		free(0.7, &m.LSA.LaunchNs, &m.LSA.BarrierNs, &m.LSA.CTAGBs)
	}
	if has(func(a actions.Action) bool { return a.Path == actions.PathGIN }) {
		free(0.7, &m.GIN.LaunchNs, &m.GIN.PutNs, &m.GIN.ContextGBs)
		free(0.3, &m.GIN.RoundTripNs[actions.BackendGDAKI], &m.GIN.RoundTripNs[actions.BackendProxy])
	}
	return ps
}

// learnBelief sets NCCL's biases so that the machine's default costs what the table's does, as far as six numbers can.
func (m *Machine) learnBelief(t *Table) {
	quiet := Quiet()
	for range 3 {
		for _, a := range ncclPairs {
			bias := &m.belief.bias[pairOf(a.Algorithm, a.Protocol)]
			best, least := *bias, m.defaultError(&quiet, t)
			for _, try := range []float64{-0.8, -0.6, -0.4, -0.2, -0.1, 0, 0.1, 0.2, 0.4, 0.6, 0.8, 2 * never} {
				*bias = try
				if e := m.defaultError(&quiet, t); e < least-1e-9 {
					best, least = try, e
				}
			}
			*bias = best
		}
	}
}

// defaultError is the mean square log error of the default's cost.
func (m *Machine) defaultError(cond *Condition, t *Table) float64 {
	sum := 0.0
	for _, p := range t.points {
		c := callOf(p.collective, p.bytes)
		cost, _ := m.collective(cond, c, m.choose(c))
		e := math.Log((cost.cost(m, 0).SignalNs + cost.waitNs) / p.defaultNs)
		sum += e * e
	}
	return sum / float64(len(t.points))
}
