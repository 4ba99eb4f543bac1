package agents

import (
	"math"

	"dynamiccl/actions"
)

// What the model of costs expects of our kernels on GIN (actions.PathGIN). Next to NCCL's default nothing is known of them:
// that is what the network is, and a table of one has them 3 to 10 times as fast. Next to each other: a CTA more is one more
// put, signal and wait for each peer, and a smaller share of the bytes, so cost over the logarithm of their number is a valley.
// Where its floor lies is the size's and the network's affair. Fewer contexts than could be have less to keep in step and more that waits in one queue, by as
// much an octave whatever the number of CTAs: over that card, where a queue has an engine of its own, they cost 0.28 to 0.58 an octave
// (gpu-sweep-gin-2gpus-contexts), and NICs that have too many of them are what fewer are for.
//
// Round numbers from docs/figures/gpu-sweep-gin-2gpus: 16 KiB to 1 MiB, two collectives, 1 to 16 CTAs, a network card in
// software (TestGINOnTable). What they are worth is in models/README.md.
const (
	sdGIN      = 1    // log cost of all of them over NCCL's default
	ginFloor   = 4    // CTAs: the contexts that NCCL grants
	ginValley  = 0.1  // log cost an octave of CTAs away from ginFloor, squared,
	sdValley   = 0.06 // how sure that is,
	sdGINSlope = 0.15 // and how steep the valley may lie, an octave
	ginShare   = 0.2  // log cost an octave of contexts less,
	sdShared   = 0.3  // and how sure that is
	sdFlat     = 0.5  // of flat kernels' log cost over hierarchical ones', of which nothing is expected: that is the network's affair
)

// ginOctave is how many octaves of CTAs an action has more than ginFloor.
func ginOctave(ctas uint8) float64 {
	if ctas == 0 {
		return 0
	}
	return math.Log2(float64(ctas) / ginFloor)
}

// ginShared is how many octaves of contexts an action has less than its CTAs could have.
func ginShared(a actions.Action) float64 {
	if a.Contexts == 0 || a.Channels <= a.Contexts {
		return 0
	}
	return math.Log2(float64(min(a.Channels, actions.MaxContexts)) / float64(a.Contexts))
}

func ginMean(octave, shared float64) float64 { return ginValley*octave*octave + ginShare*shared }

// ginCovariance is that of two actions of PathGIN.
func ginCovariance(a, b *features) float64 {
	product := a.octave * b.octave
	covariance := sdGIN*sdGIN + sdGINSlope*sdGINSlope*product + sdValley*sdValley*product*product + sdShared*sdShared*a.shared*b.shared
	if a.action.Flat && b.action.Flat {
		covariance += sdFlat * sdFlat
	}
	return covariance
}
