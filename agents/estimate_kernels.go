package agents

import (
	"math"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// What the model of costs expects of our own kernels (actions.PathLSA). They have little in common with NCCL's choices, and
// with each other what the machine's links and launches are. A CTA of a kernel makes passes over the call, one behind the
// other, so what its number is worth is counted in passes: CTAs beyond the last that has something to do are no fewer.
//
// Round numbers, from what the kernels move, lines of 128 bytes with 120 of data, and the synthetic fabrics' constants. With all
// passes made at once an action's doubt is sdCommon, as that of every path but NCCL's own. The policies were trained when lines
// were half flag (times of 2, passes of 4 KiB); on the tables of our kernels (docs/figures, 4 H200) they lose 3.7 calls of 64 with
// what is true now and lost 12.2 with what they were trained on.
const (
	lineTimes    = 16.0 / 15 // of what goes in lines, that crosses a link
	meanPasses   = 0.3       // log cost of every doubling of the passes,
	sdPasses     = 0.25      // and how sure that is; one for all kernels
	kernelShares = 0.4       // of sdCommon's variance, what all kernels have in common,
	countShares  = 0.2       // and what a kernel at this number of CTAs has to itself; the rest is the kernel's
)

// tops are the greatest numbers in a set. Channels and CTAs are different things: what our kernels may run with must not
// move what a number of channels means.
type tops struct {
	channels float64
	ctas     float64 // with something to do
}

func topsOf(set []actions.Action, log2Bytes uint8) tops {
	top := tops{1, 1}
	for _, a := range set {
		if a.Path == actions.PathLSA {
			top.ctas = max(top.ctas, float64(a.Channels))
		} else {
			top.channels = max(top.channels, float64(a.Channels))
		}
	}
	top.ctas = min(top.ctas, max(1, math.Exp2(float64(log2Bytes)+1)/actions.CTABytes))
	return top
}

// passes is log2 of how many more passes an action of PathLSA makes than the set's greatest number of CTAs.
func (t tops) passes(a actions.Action) float64 {
	if a.Channels == 0 {
		return 0 // the kernel's own number
	}
	return max(0, math.Log2(t.ctas/float64(a.Channels)))
}

// moves is what an action of PathLSA is expected to cost for the bytes that it moves: of a large call NCCL's ring moves the
// least there is, one shot each rank's whole part to every other one, and of a line a part is its number.
func moves(a actions.Action, b state.Bucket, s state.Shape) float64 {
	if a.Path != actions.PathLSA || s.Nodes != 1 {
		return 0
	}
	times := lineTimes
	switch {
	case a.Kernel == actions.Bulk:
		times = 1
	case a.Kernel == actions.OneShot && b.Collective == actions.AllReduce:
		times = lineTimes * float64(s.Ranks)
	}
	return bandwidthBound(b.Log2Bytes) * math.Log(times)
}

// kernelCovariance is that of two actions of PathLSA.
func kernelCovariance(a, b *features) float64 {
	share := kernelShares
	if a.action.Kernel == b.action.Kernel {
		d := (a.octave - b.octave) / octaveScale
		share = 1 - countShares + countShares*math.Exp(-d*d)
	}
	return share*sdCommon*sdCommon + sdPasses*sdPasses*a.octave*b.octave
}
