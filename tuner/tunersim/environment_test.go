package tunersim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

var bucket1K = state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}

func TestEnvironmentSkewIsNotCharged(t *testing.T) {
	phases := []Phase{{load(t, quietFile), 2000}}
	env := NewEnvironment(phases, bucket1K, Noise{Sigma: 0.05, SkewNs: 1e6}, rand.New(rand.NewPCG(1, 1)))
	firsts := map[int32]int{}
	var costs []float64
	before := state.Ns(0)
	for env.Table() != nil {
		c := env.Call(actions.Default)
		if slices.Min(c.RankNs) != c.Seen.SignalNs || c.RankNs[c.Seen.FirstRank] != c.Seen.SignalNs {
			t.Fatalf("the last rank to arrive, %d, measures %d of %v, the group's cost is %d", c.Seen.FirstRank, c.RankNs[c.Seen.FirstRank], c.RankNs, c.Seen.SignalNs)
		}
		if d := slices.Max(c.RankNs) - c.Seen.SignalNs - c.Seen.SkewNs; d < -1 || d > 1 {
			t.Fatalf("skew %d of %v", c.Seen.SkewNs, c.RankNs)
		}
		if c.Seen.AtNs <= before {
			t.Fatal("time stands still")
		}
		before = c.Seen.AtNs
		firsts[c.Seen.FirstRank]++
		costs = append(costs, float64(c.Seen.SignalNs))
	}
	def, _ := phases[0].Table.Default(bucket1K)
	// Median of 2000: standard error 0.05*1.25/sqrt(2000) = 0.0014.
	if m := math.Log(median(costs) / def); math.Abs(m) > 0.006 {
		t.Errorf("median cost is off the table by %f although skew is 20 times the cost", m)
	}
	for r := range int32(4) {
		if firsts[r] < 400 || firsts[r] > 600 {
			t.Errorf("rank %d was last %d times of 2000", r, firsts[r])
		}
	}
}

func TestEnvironmentConditions(t *testing.T) {
	quiet, network := load(t, quietFile), load(t, networkFile)
	env := NewEnvironment([]Phase{{quiet, 3}, {network, 2}}, bucket1K, Noise{}, rand.New(rand.NewPCG(1, 1)))
	var got []float64
	for env.Table() != nil {
		got = append(got, float64(env.Call(actions.Default).Seen.SignalNs))
	}
	want := []float64{56590, 56590, 56590, 91220, 91220}
	for i := range want {
		if len(got) != len(want) || math.Abs(got[i]-want[i]) > 1 {
			t.Fatalf("costs %v, want %v", got, want)
		}
	}
}

func TestEnvironmentTailsAndLoss(t *testing.T) {
	env := NewEnvironment([]Phase{{load(t, quietFile), 4000}}, bucket1K, Noise{TailProb: 0.05, TailLog: 1, LostProb: 0.1}, rand.New(rand.NewPCG(2, 2)))
	lost, tail := 0, 0
	for env.Table() != nil {
		c := env.Call(actions.Default)
		if c.Lost {
			lost++
		}
		if float64(c.Seen.SignalNs) > 2*c.TableNs { // exp(Exp(1)) > 2 with probability 1/2
			tail++
		}
	}
	if lost < 320 || lost > 480 || tail < 60 || tail > 140 {
		t.Errorf("%d lost of 400 expected, %d delayed of 100 expected", lost, tail)
	}
}
