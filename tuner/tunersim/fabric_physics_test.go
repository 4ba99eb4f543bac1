package tunersim

import (
	"math"
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// plain is a machine at its sources' values, without wobble and scatter.
func plain(transport string, nodes, perNode, nics int) Machine {
	return sourceMachine(&Table{Shape: state.Shape{Ranks: nodes * perNode, Nodes: nodes, Transport: transport}, NICs: nics})
}

func (m *Machine) mustCost(t *testing.T, cond Condition, c actions.Collective, bytes uint64, action string) Cost {
	t.Helper()
	cost, ok := m.Cost(&cond, c, bytes, must(t, action))
	if !ok || !(cost.SignalNs > 0) || cost.CounterNs > cost.SignalNs || cost.CounterNs < 0.3*cost.SignalNs && cond.RemoteNs == 0 {
		t.Fatalf("%s %s of %d bytes in %s: %+v, %v", m.Shape.Transport, action, bytes, cond.Name, cost, ok)
	}
	return cost
}

// TestModelFollowsItsSources: each claim is one that a source makes.
func TestModelFollowsItsSources(t *testing.T) {
	nvlink, ib, socket := plain("nvlink", 1, 8, 0), plain("rdma", 4, 8, 2), plain("socket", 2, 2, 1)
	nvlink.MaxChannels, ib.MaxChannels, socket.MaxChannels = 32, 32, 32
	ns := func(m *Machine, bytes uint64, action string) float64 {
		return m.mustCost(t, Quiet(), actions.AllReduce, bytes, action).SignalNs
	}
	less := func(why string, a, b float64) {
		t.Helper()
		if !(a < b) {
			t.Errorf("%s: %.0f ns is not less than %.0f", why, a, b)
		}
	}
	less("LL needs no fences", ns(&nvlink, 1024, "Ring/LL/1"), ns(&nvlink, 1024, "Ring/Simple/1")/2)
	less("Simple wastes no bandwidth on flags", ns(&nvlink, 1<<28, "Ring/Simple/32"), ns(&nvlink, 1<<28, "Ring/LL/32")/1.5)
	less("trees take log steps between nodes", ns(&ib, 1024, "Tree/LL/1"), ns(&ib, 1024, "Ring/LL/1")/1.5)
	less("rings move less over a tree's two ways", ns(&ib, 1<<28, "Ring/Simple/8"), ns(&ib, 1<<28, "Tree/Simple/8"))
	less("channels add bandwidth", ns(&nvlink, 1<<26, "Ring/Simple/8"), ns(&nvlink, 1<<26, "Ring/Simple/1")/5)
	ib.Gamma = 0.1
	less("beyond the NICs' saturation channels cost (gamma)", ns(&ib, 1<<28, "Ring/Simple/8"), ns(&ib, 1<<28, "Ring/Simple/32")/1.1)
	less("a proxy thread serves channels one after the other", ns(&socket, 1<<16, "Tree/LL/2"), ns(&socket, 1<<16, "Tree/LL/32")/1.5)
	if a, b := ns(&socket, 1024, "Ring/LL128/1"), ns(&socket, 1024, "Ring/LL128/32"); a != b {
		t.Errorf("1 KiB has one channel's 16 KiB of traffic, but asking for 32 costs %.0f instead of %.0f", b, a)
	}
	less("NVLink channels want threads", ns(&nvlink, 1<<24, "Ring/Simple/4/t512"), ns(&nvlink, 1<<24, "Ring/Simple/4/t64"))
	best := func(m *Machine) (w int) {
		least := math.Inf(1)
		for warps := uint8(1); warps <= 32; warps++ {
			cost, _ := m.Cost(&Condition{LinkShare: 1, LatencyTimes: 1, LaunchTimes: 1, SMShare: 1}, actions.AllReduce, 1<<24,
				actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple, Channels: 2, Warps: warps})
			if cost.SignalNs < least {
				least, w = cost.SignalNs, int(warps)
			}
		}
		return w
	}
	if a, b := best(&nvlink), best(&ib); a <= b {
		t.Errorf("best with %d warps on NVLink, %d on RDMA: each has its own optimum, RDMA's is lower", a, b)
	}
	gather := func(action string, cond Condition) float64 {
		return ib.mustCost(t, cond, actions.AllGather, 1024, action).SignalNs
	}
	if d := gather("gin/proxy/1", Quiet()) - gather("gin/gdaki/1", Quiet()); math.Abs(d-650) > 1 { // one way of a round trip
		t.Errorf("proxy costs %.0f ns more than GDAKI one way, the paper's round trips differ by 1,300", d)
	}
	if a, b := gather("gin/gdaki/4/c4", Quiet()), gather("gin/gdaki/4", Quiet()); a != b {
		t.Errorf("a context for each CTA costs %.0f ns where they are said to share as many, and %.0f else", a, b)
	}
	big := func(m *Machine, action string) float64 {
		return m.mustCost(t, Quiet(), actions.AllGather, 1<<24, action).SignalNs
	}
	less("contexts post and move side by side", gather("gin/gdaki/8", Quiet()), gather("gin/gdaki/8/c1", Quiet()))
	wide := ib
	wide.GIN.ContextGBs, wide.SatChannels, wide.Gamma = 1000, 2, 0.3
	less("beyond the NICs' saturation contexts cost, and CTAs that share fewer do not", big(&wide, "gin/gdaki/8/c2"), big(&wide, "gin/gdaki/8"))
	busy := Condition{Name: "cpu-load", LinkShare: 1, LatencyTimes: 1, LaunchTimes: 1, SMShare: 1, CPUWait: 2}
	less("a proxy thread serves contexts in turn", gather("gin/proxy/8/c1", busy), gather("gin/proxy/8", busy))
	less("one-shot load/store beats hops at 1 KiB", ns(&nvlink, 1024, "lsa/oneshot/1"), ns(&nvlink, 1024, "Ring/LL/1")/2)
	for _, c := range []struct {
		why         string
		bytes       uint64
		first, then string
	}{
		{"one shot crosses once", 1 << 10, "lsa/oneshot/1", "lsa/twoshot/1"},
		{"flags need no barriers", 1 << 13, "lsa/twoshot/4", "lsa/bulk/4"},
		{"two shots move a share", 1 << 18, "lsa/twoshot/32", "lsa/oneshot/32"},
		{"bulk wastes no bandwidth on flags", 1 << 24, "lsa/bulk/32", "lsa/twoshot/32"},
		{"CTAs add bandwidth", 1 << 20, "lsa/twoshot/32", "lsa/twoshot/4"},
	} {
		less(c.why, ns(&nvlink, c.bytes, c.first), ns(&nvlink, c.bytes, c.then))
	}
	quiet := Quiet()
	for s, want := range map[string]bool{"lsa/oneshot/16": true, "lsa/twoshot/16": false, "lsa/bulk/16": true} {
		_, gathers := nvlink.Cost(&quiet, actions.AllGather, 1<<20, must(t, s))
		if _, sends := nvlink.Cost(&quiet, actions.Broadcast, 1<<20, must(t, s)); gathers != want || sends != (s == "lsa/oneshot/16") {
			t.Errorf("%s: AllGather %v, Broadcast %v", s, gathers, sends)
		}
	}
	less("CPU load is quanta", 3*socket.QuantumNs, socket.mustCost(t, Condition{Name: "cpu-load", LinkShare: 1, LatencyTimes: 1, LaunchTimes: 1,
		SMShare: 1, CPUWait: 2}, actions.AllReduce, 1024, "Ring/LL/1").SignalNs)
}

// TestConditionsMoveCounterAndSignal: the pair of latencies is the diagnosis (shared design, section 4).
func TestConditionsMoveCounterAndSignal(t *testing.T) {
	rng := rand.New(rand.NewPCG(fabricSeed(t), 5))
	for range 100 {
		m := RandomMachine(rng)
		quiet := Quiet()
		for _, cond := range m.Conditions(rng) {
			for _, bytes := range []uint64{1 << 10, 1 << 20} {
				for _, a := range m.Actions(actions.AllReduce) {
					before, _ := m.Cost(&quiet, actions.AllReduce, bytes, a)
					after, _ := m.Cost(&cond, actions.AllReduce, bytes, a)
					if after.CounterNs > after.SignalNs || before.CounterNs > before.SignalNs {
						t.Fatalf("%s %s: counter after signal: %+v %+v", m.Name, a, before, after)
					}
					counter, signal := after.CounterNs-before.CounterNs, after.SignalNs-before.SignalNs
					switch cond.Name {
					case "quiet":
						if counter != 0 || signal != 0 {
							t.Fatalf("%s %s: quiet differs from quiet", m.Name, a)
						}
					case "remote-side":
						if counter != 0 || signal <= 0 {
							t.Fatalf("%s %s: counter moved by %g, signal by %g", m.Name, a, counter, signal)
						}
					case "cpu-load":
						if signal < 0 || cond.CPUWait > 0 && math.Abs(counter-signal) > 0.6*signal+1 {
							t.Fatalf("%s %s: counter moved by %g, signal by %g", m.Name, a, counter, signal)
						}
					case "backend-fallback":
						if math.Abs(counter-signal) > 0.61*math.Abs(signal)+1 || signal < 0 {
							t.Fatalf("%s %s: counter moved by %g, signal by %g: not a constant on both", m.Name, a, counter, signal)
						}
					}
				}
			}
		}
	}
}

// TestDefaultSplitIsNearTheModels: recorded tables get a split that is no stranger than the machines'.
func TestDefaultSplitIsNearTheModels(t *testing.T) {
	rng := rand.New(rand.NewPCG(fabricSeed(t), 6))
	var off []float64
	for range 100 {
		m := RandomMachine(rng)
		for _, b := range sweepBuckets() {
			for _, a := range m.Actions(b.Collective) {
				quiet := Quiet()
				c, _ := m.Cost(&quiet, b.Collective, 1<<b.Log2Bytes, a)
				share := DefaultSplit(m.Topology(), b, a)
				if share < 0.5 || share >= 1 {
					t.Fatalf("%s: share %g", a, share)
				}
				off = append(off, math.Abs(share-c.CounterNs/c.SignalNs))
			}
		}
	}
	m := median(off)
	t.Logf("median distance of the counter's share %.3f", m)
	if m > 0.15 {
		t.Errorf("median distance of the counter's share %.3f", m)
	}
}
