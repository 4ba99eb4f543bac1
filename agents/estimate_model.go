package agents

import (
	"math"

	"gonum.org/v1/gonum/blas/blas64"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// costModel predicts the log cost of every action over NCCL's default from the few that were measured: a Gaussian
// process over algorithm, protocol and log2(channels). Effects of algorithm and protocol add up, costs of neighbouring
// channel numbers are alike, and all actions share a slope over channels, so that a dozen calls say something about 42.
//
// Index 0 is the default, the reference: its relative cost is 0 and is not modelled.
type costModel struct {
	n       int
	feat    []features
	sdSlope float64   // of the common slope, a channel octave
	mean    []float64 // [n]
	cov     []float64 // [n,n] row-major
	prior   []float64 // cov before any measurement: resetting is frequent, its exponentials are slow
	k, gain []float64 // [n], scratch
}

type features struct {
	action actions.Action
	octave float64 // log2 of the set's greatest channel number over this action's; of our kernels: of passes (estimate_kernels.go), on GIN of CTAs (estimate_gin.go)
	shared float64 // on GIN: octaves of contexts that it has less than it could
	mean   float64
}

// Standard deviations of the parts of a relative log cost. From variances within and between rows of the 8x H200 NVLink
// and 2-node socket tables (NCCL 2.28.9), rounded: they need to be right within a factor of two.
const (
	sdCommon    = .25 // all actions against the default
	sdAlgorithm = .25
	sdProtocol  = .30
	sdPair      = .25 // algorithm and protocol together
	sdChannels  = .20 // smooth over channels, within algorithm and protocol
	sdOwn       = 0.08
	octaveScale = 1.5 // channels: correlation falls to 1/e over this many octaves, squared
)

// meanOctave is what every halving of the channels is expected to add where bandwidth counts.
const meanOctave = 0.4

// Where bandwidth begins to count: a call of 64 KiB is latency, one of 4 MiB bytes per channel.
const (
	latencyLog2Bytes   = 16
	bandwidthLog2Bytes = 22
)

// bandwidthBound is 0 where a call of this size is all latency, 1 where it is all bandwidth.
func bandwidthBound(log2Bytes uint8) float64 {
	return min(1, max(0, (float64(log2Bytes)-latencyLog2Bytes)/(bandwidthLog2Bytes-latencyLog2Bytes)))
}

func newCostModel(set []actions.Action, bucket state.Bucket) *costModel {
	m := &costModel{n: len(set), mean: make([]float64, len(set)), cov: make([]float64, len(set)*len(set)),
		prior: make([]float64, len(set)*len(set)), k: make([]float64, len(set)), gain: make([]float64, len(set)), feat: make([]features, len(set))}
	top := topsOf(set, bucket.Log2Bytes)
	w := bandwidthBound(bucket.Log2Bytes)
	for i, a := range set {
		m.feat[i] = featuresOf(a, top, w)
	}
	m.sdSlope = 0.05 + 0.25*w
	for i := 1; i < m.n; i++ {
		for j := 1; j <= i; j++ {
			c := m.covariance(&m.feat[i], &m.feat[j])
			if i == j {
				c += sdOwn * sdOwn
			}
			m.prior[i*m.n+j], m.prior[j*m.n+i] = c, c
		}
	}
	m.reset()
	return m
}

// featuresOf describes an action of a set whose greatest numbers are top; w is the size's bandwidthBound.
func featuresOf(a actions.Action, top tops, w float64) features {
	f := features{action: a}
	switch a.Path {
	case actions.PathCollective:
	case actions.PathLSA:
		f.octave = top.passes(a)
		f.mean = meanPasses * f.octave
		return f
	case actions.PathGIN:
		f.octave, f.shared = ginOctave(a.Channels), ginShared(a)
		f.mean = ginMean(f.octave, f.shared)
		return f
	case actions.PathSymmetric:
		f.mean = symmetricMean(a.Symmetric, w)
		return f
	default:
		return f
	}
	if a.Channels > 0 {
		f.octave = math.Log2(top.channels / float64(a.Channels))
	}
	f.mean = 0.1 + meanOctave*w*f.octave
	switch a.Protocol {
	case actions.LL:
		f.mean += 0.5 * w // half of every LL store is flag
	case actions.Simple:
		f.mean += 0.3 * (1 - w) // waits for memory fences
	}
	return f
}

// reset forgets every measurement.
func (m *costModel) reset() {
	copy(m.cov, m.prior)
	for i := range m.feat {
		m.mean[i] = m.feat[i].mean
	}
}

func (m *costModel) covariance(a, b *features) float64 {
	if a.action.Path != b.action.Path {
		return 0
	}
	c := sdCommon * sdCommon
	switch a.action.Path {
	case actions.PathCollective:
	case actions.PathLSA:
		return kernelCovariance(a, b)
	case actions.PathGIN:
		return ginCovariance(a, b)
	case actions.PathSymmetric:
		if a.action.Symmetric != actions.SymmetricAny && a.action == b.action { // each has its own flags, and barriers
			c += sdAlgorithm*sdAlgorithm + sdProtocol*sdProtocol + sdPair*sdPair
		}
		return c
	default:
		return c
	}
	c += m.sdSlope * m.sdSlope * a.octave * b.octave
	if a.action.Algorithm == b.action.Algorithm {
		c += sdAlgorithm * sdAlgorithm
	}
	if a.action.Protocol == b.action.Protocol {
		c += sdProtocol * sdProtocol
	}
	if a.action.Algorithm == b.action.Algorithm && a.action.Protocol == b.action.Protocol {
		d := (a.octave - b.octave) / octaveScale
		c += sdPair*sdPair + sdChannels*sdChannels*math.Exp(-d*d)
	}
	return c
}

// observe conditions the model on one relative log cost with the given variance of its noise.
func (m *costModel) observe(i int, relative, variance float64) {
	if i == 0 {
		return
	}
	m.condition(i, relative-m.mean[i], variance)
}

// pretend narrows the model as a measurement that is still under way will, without knowing what it will say.
func (m *costModel) pretend(i int, variance float64) { m.condition(i, 0, variance) }

func (m *costModel) condition(i int, surprise, variance float64) {
	copy(m.k, m.cov[i*m.n:(i+1)*m.n])
	total := m.k[i] + variance
	if total <= 0 {
		return
	}
	for r, k := range m.k {
		m.gain[r] = k / total
		m.mean[r] += m.gain[r] * surprise
	}
	blas64.Ger(-1, vector(m.gain), vector(m.k), matrix(m.cov, m.n, m.n))
}

// predict gives the expected relative log cost of an action and its standard deviation.
func (m *costModel) predict(i int) (mean, sd float64) {
	return m.mean[i], math.Sqrt(max(0, m.cov[i*m.n+i]))
}
