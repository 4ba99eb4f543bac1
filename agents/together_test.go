package agents

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// putsInTurn are puts of a way in four sizes, and when all of them take 1.2 times as long.
type putsInTurn struct {
	rng   *rand.Rand
	watch *ginWatch
	n     int
}

func newPutsInTurn(seed, trial uint64, d Design) *putsInTurn {
	return &putsInTurn{rng: rand.New(rand.NewPCG(seed, trial)), watch: newGinWatch(d)}
}

func (p *putsInTurn) put(ratio float64) Alarm { return p.inBlocks(ratio, 1) }

// inBlocks makes a put of the size whose turn it is for so many of them.
func (p *putsInTurn) inBlocks(ratio float64, block int) Alarm {
	bytes := uint64(2048) << (2 * (p.n / block % 4))
	p.n++
	ns := 10e3 * ratio * math.Exp(0.1*p.rng.NormFloat64())
	a, _ := p.watch.observe(state.Observation{Action: actions.Default, Bytes: bytes, SignalNs: state.Ns(ns), CounterNs: state.Ns(ns / 2)})
	return a
}

// A step in all sizes of a way is found in fewer puts by all of them together than by any one, and one that ends is found again;
// where there is none, all sizes together add next to no alarms.
func TestSizesOfAWayAreWatchedTogether(t *testing.T) {
	alone, together, seed, design := 0, 0, detectorSeed(t), mustDesign(t)
	var delays []int
	for trial := range uint64(200) {
		p := newPutsInTurn(seed, trial, design)
		for range 400 {
			p.put(1)
		}
		n := 1
		for a := p.put(1.2); !a.Raised; a = p.put(1.2) {
			n++
		}
		delays = append(delays, n)
	}
	slices.Sort(delays)
	p := newPutsInTurn(seed, 1000, design)
	for range 200_000 {
		if a := p.put(1); a.Together > 0 {
			together++
		} else if a.Raised {
			alone++
		}
	}
	t.Logf("20%% at 10%% noise in four sizes: found after %d puts in the median, %d in 95 of 100; 200,000 quiet ones: %d alarms of single sizes, %d of all", delays[100], delays[190], alone, together)
	if delays[100] > 18 || delays[190] > 28 || alone > 2 || together > 1 {
		t.Error("want 18 and 28 puts at most (sizes by themselves: 32 and 45), and no more than one alarm in 100,000")
	}
}

// Where sizes follow each other a dozen puts at a time, the one in which all of them alarm has seen but a part of what there is: those
// before it are evidence, too, and do not pass for what expectations were off by before.
func TestAlarmOfAllSizesKnowsWhenItBegan(t *testing.T) {
	const trials, block = 50, 12
	seed, design := detectorSeed(t), mustDesign(t)
	together, evidence := 0, 0
	for trial := range uint64(trials) {
		p := newPutsInTurn(seed, trial, design)
		for range 40 * block {
			p.inBlocks(1, block)
		}
		a := Alarm{}
		for !a.Raised {
			a = p.inBlocks(1.16, block)
		}
		if a.Together == 0 || p.n < 41*block { // of its own, or all in the first of the sizes
			continue
		}
		together++
		if e := p.watch.diagnoser.order[0]; e.taken >= block-4 {
			evidence++
		}
	}
	t.Logf("%d of %d alarms of all sizes, %d with what the size before showed", together, trials, evidence)
	if together < trials/2 || 100*evidence < 80*together {
		t.Error("want half, and four fifths of these")
	}
}

// A put that took what no clock can mean is none: what came before it does not count twice.
func TestSizesTogetherIgnoreWhatNoClockMeans(t *testing.T) {
	p := newPutsInTurn(detectorSeed(t), 1, mustDesign(t))
	for range 400 {
		p.put(1)
	}
	p.put(1.3)
	was := p.watch.together.chart
	for range 100 {
		for b, d := range p.watch.detectors {
			o := state.Observation{Action: actions.Default, Bytes: 1 << b.Log2Bytes, SignalNs: maxPlausibleNs + 1}
			if a := p.watch.together.Observe(d, d.Observe(o), true); a.Raised {
				t.Fatalf("%+v", a)
			}
		}
	}
	if p.watch.together.chart != was {
		t.Error("the sums have moved")
	}
}
