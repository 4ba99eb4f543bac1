package tunersim

import (
	"math"
	"math/rand/v2"

	"dynamiccl/actions"
)

// Condition is what else happens on a machine while it communicates. Start from Quiet: shares and factors of zero are
// nothing left.
type Condition struct {
	Name         string
	LinkShare    float64 // of the bottleneck link's bandwidth that is left
	LatencyTimes float64 // of a hop on the loaded links
	Crowding     float64 // network time grows by so much with each doubling of channels
	Chunky       float64 // and by so much for protocols that send large pieces: LL128 half of it, Simple all
	CPUWait      float64 // mean wait of a proxy thread for a core, in scheduler quanta
	LaunchTimes  float64 // of the launch
	SMShare      float64 // of a channel's copy rate that is left
	ComputeNs    float64 // each channel's wait for an SM
	ConstantNs   float64 // every network hop, or every call where there is no network, at any size
	RemoteNs     float64 // until a slow receiver sees the data
	RemoteShare  float64 // and the same in proportion to the transfer
}

// ConditionNames are those that RandomCondition knows; the first three are measured ones.
var ConditionNames = []string{"quiet", "network-load", "cpu-load", "remote-side", "backend-fallback", "compute-load"}

// Quiet is a machine that does nothing else.
func Quiet() Condition {
	return Condition{Name: "quiet", LinkShare: 1, LatencyTimes: 1, LaunchTimes: 1, SMShare: 1}
}

// crowd is the factor on network time that many channels and large pieces cost under load.
func (c *Condition) crowd(channels float64, p actions.Protocol) float64 {
	f := 1.0
	if c.Crowding > 0 {
		f += c.Crowding * math.Log2(channels)
	}
	if c.Chunky > 0 {
		f *= 1 + c.Chunky*float64(p)/2 // LL 0, LL128 1, Simple 2
	}
	return f
}

// RandomCondition draws how hard a named condition hits; a name that is not known is quiet under that name. Where a
// machine has no network or no proxy threads, the load is on its links and launches.
func (m Machine) RandomCondition(name string, rng *rand.Rand) Condition {
	c := Quiet()
	c.Name = name
	u := func(lo, hi float64) float64 { return lo + (hi-lo)*rng.Float64() }
	network := m.Shape.Nodes > 1
	switch name {
	case "network-load":
		// Measured on sockets (shared measurements): small calls 1.1-1.3 of quiet, large ones 1.3-1.7.
		c.LinkShare, c.LatencyTimes = u(0.3, 0.95), u(1, 1.8)
		c.Crowding, c.Chunky = max(0, u(-0.05, 0.12)), max(0, u(-0.3, 0.5))
	case "cpu-load":
		// 50 us became 8,000-30,000 us (shared design, section 4). Milder loads hit now and then.
		if network {
			c.CPUWait = math.Exp(u(math.Log(0.1), math.Log(8)))
			if m.Shape.Transport == "rdma" {
				c.CPUWait /= 4 // a NIC works on while its proxy thread waits
			}
		}
		c.LaunchTimes = u(1, 2)
	case "remote-side":
		scale := m.typicalHopNs()
		c.RemoteNs, c.RemoteShare = scale*math.Exp(u(-1, 2)), max(0, u(-0.2, 0.6))
	case "backend-fallback":
		// 1.3 us from GDAKI to proxy (seed 001) is the least; a copy through host memory costs a multiple.
		c.ConstantNs = (proxyRoundTripNs - gdakiRoundTripNs) * math.Exp(u(0, 2.5))
	case "compute-load":
		c.SMShare, c.LaunchTimes = u(0.4, 0.95), u(1, 1.6)
		c.ComputeNs = math.Exp(u(math.Log(10), math.Log(1500)))
	}
	return c
}

// typicalHopNs is the hop that dominates on this machine.
func (m *Machine) typicalHopNs() float64 {
	if m.Shape.Nodes > 1 {
		return m.InterHopNs[pairOf(actions.Ring, actions.LL)]
	}
	return m.IntraHopNs[pairOf(actions.Ring, actions.Simple)]
}

// Conditions draws one of each, quiet first.
func (m Machine) Conditions(rng *rand.Rand) []Condition {
	cs := make([]Condition, len(ConditionNames))
	for i, name := range ConditionNames {
		cs[i] = m.RandomCondition(name, rng)
	}
	return cs
}
