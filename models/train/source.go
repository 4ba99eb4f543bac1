package train

import (
	"math"
	"math/rand/v2"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner/tunersim"
)

// Source draws the machine of an episode: one table, or two conditions of one machine, in the order that they come.
type Source func(rng *rand.Rand) []*tunersim.Table

// changing is the part of episodes in which conditions change midway.
const changing = 0.5

// maxJitter is the greatest strength of the augmentation of recorded tables; half of the draws are below a quarter of it.
const maxJitter = 1.5

// Recorded draws recorded tables, each time jittered. Conditions of one machine get the same jitter.
func Recorded(tables []*tunersim.Table) Source {
	return func(rng *rand.Rand) []*tunersim.Table {
		first := tables[rng.IntN(len(tables))]
		drawn := []*tunersim.Table{first}
		if rng.Float64() < changing {
			var others []*tunersim.Table
			for _, t := range tables {
				if t != first && tunersim.SameMachine(t, first) {
					others = append(others, t)
				}
			}
			if len(others) > 0 {
				drawn = append(drawn, others[rng.IntN(len(others))])
			}
		}
		strength, seed := maxJitter*math.Pow(rng.Float64(), 2), rng.Uint64()
		for i, t := range drawn {
			drawn[i] = tunersim.Jitter(t, strength, rand.New(rand.NewPCG(seed, 1)))
		}
		return drawn
	}
}

// Synthetic draws machines of the fabric model, each with a few sizes of one collective and sometimes others.
func Synthetic() Source {
	return func(rng *rand.Rand) []*tunersim.Table {
		m := tunersim.RandomMachine(rng)
		cs := m.Conditions(rng)
		i, j := rng.IntN(len(cs)), rng.IntN(len(cs))
		if rng.Float64() < quietFirst {
			i = 0
		}
		buckets := randomBuckets(rng)
		drawn := []*tunersim.Table{m.Table(cs[i], buckets, rng)}
		if rng.Float64() < changing && i != j {
			drawn = append(drawn, m.Table(cs[j], buckets, rng))
		}
		return drawn
	}
}

// quietFirst is the part of synthetic episodes that begin on a quiet machine.
const quietFirst = 0.5

// randomBuckets are mostly sizes of one collective, two octaves apart, as programs and benchmarks have them.
func randomBuckets(rng *rand.Rand) []state.Bucket {
	c := actions.Collective(rng.IntN(actions.NumAsked))
	if rng.Float64() < 0.4 {
		c = actions.AllReduce
	}
	size, step := 8+rng.IntN(16), 1+rng.IntN(3)
	var bs []state.Bucket
	for range 1 + rng.IntN(maxBuckets) {
		if size > 30 {
			break
		}
		bs = append(bs, state.Bucket{Collective: c, Log2Bytes: uint8(size)})
		size += step
	}
	if rng.Float64() < 0.3 {
		bs = append(bs, state.Bucket{Collective: actions.Collective(rng.IntN(actions.NumAsked)), Log2Bytes: bs[0].Log2Bytes})
	}
	return bs
}

// Mix draws from a in the given part of the episodes, else from b.
func Mix(part float64, a, b Source) Source {
	return func(rng *rand.Rand) []*tunersim.Table {
		if rng.Float64() < part {
			return a(rng)
		}
		return b(rng)
	}
}
