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
// Round numbers, from what the kernels move, lines of 128 bytes with 120 of data, and the tables of docs/figures (2 and 4 H200;
// TestKernelsOnTables): less than half of NCCL's time where launches and trips count, three quarters where bytes do. With all passes
// made at once an action's doubt is sdCommon. Policies were trained when lines were half
// flag and nothing was known of launches (1, times of 2, passes of 4 KiB); what they lose with either is in models/README.md.
const (
	kernelLaunch = -0.8      // log cost over NCCL's default of a call that is all latency,
	kernelBytes  = -0.3      // and of one that is all bandwidth, if both move the same
	lineTimes    = 16.0 / 15 // of what goes in lines, that crosses a link
	meanPasses   = 0.3       // log cost of every doubling of the passes,
	sdPasses     = 0.25      // and how sure that is; one for all kernels
	kernelShares = 0.4       // of sdCommon's variance, what all kernels have in common,
	countShares  = 0.2       // what a kernel at this number of CTAs has to itself,
	threadShares = 0.1       // and with this number of threads; the rest is the kernel's
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
		switch {
		case a.Path == actions.PathLSA:
			top.ctas = max(top.ctas, float64(a.Channels))
		case !a.Ours():
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

// kernelMean is what an action of PathLSA with all passes made at once is expected to cost. Of a large call it depends on the
// bytes that it moves: NCCL's ring moves the least there is, of AllReduce two shares of all ranks but one, which one shot sends
// whole to each of them.
func kernelMean(a actions.Action, b state.Bucket, s state.Shape) float64 {
	if a.Path != actions.PathLSA || s.Nodes != 1 {
		return 0
	}
	times := lineTimes
	switch {
	case a.Kernel == actions.Bulk || a.Kernel == actions.Direct: // what direct saves crosses no link
		times = 1
	case a.Kernel == actions.OneShot && b.Collective.Plain() == actions.AllReduce:
		times = lineTimes * max(1, float64(s.Ranks)/2)
	}
	w := bandwidthBound(b.Log2Bytes)
	return (1-w)*kernelLaunch + w*(kernelBytes+math.Log(times))
}

// kernelCovariance is that of two actions of PathLSA.
func kernelCovariance(a, b *features) float64 {
	share := kernelShares
	if a.action.Kernel == b.action.Kernel {
		d := (a.octave - b.octave) / octaveScale
		share = 1 - countShares + countShares*math.Exp(-d*d)
		if a.action.Warps != b.action.Warps {
			share -= threadShares
		}
	}
	return share*sdCommon*sdCommon + sdPasses*sdPasses*a.octave*b.octave
}
