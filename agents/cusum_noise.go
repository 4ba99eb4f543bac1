package agents

import "math"

// sumNoise measures what thresholds must know of noise that is not independent: the variance of a sum of residuals over
// what it were if they were independent. Real fabrics have calls that are dear together, for a burst or for seconds; their
// sums, which is what a CUSUM charts, wander far beyond what the deviation of single calls says.
//
// It takes the variance of Haar differences, of neighbouring sums of 1, 2, 4 ... calls (Allan, Statistics of atomic
// frequency standards, Proc. IEEE 54 (1966)): 1 at every length where residuals are independent. The length where it is
// greatest counts. A true change is in one difference of each length at most, cut off like a residual, and no difference
// spans an alarm.
//
// Thresholds grow in proportion. In Siegmund's approximation residuals whose sums vary r times as much have the run length
// r*(exp(2kb/r)-2kb/r-1)/(2k*k) at threshold b, so b = r*h gives at least that of independent ones at h, for noise that is
// forgotten within the longest sums. Of slower noise nothing is promised.
type sumNoise struct {
	scales noiseScales
	pairs  [noiseLengths]noisePair
	fabric *sharedNoise // what all buckets of the communicator saw; may be nil
	rounds [noiseLengths]uint32
	least  float64 // inflation that is taken for granted; 0: none
}

// noiseScale is one length of sums.
type noiseScale struct {
	excess float64 // variance of differences less 1
	n      float64 // differences behind it, at most noiseMemory
}

type noiseScales [noiseLengths]noiseScale

func (s *noiseScale) add(squared, weight float64) {
	s.n = math.Min(s.n+weight, noiseMemory)
	s.excess += (squared - 1 - s.excess) * weight / s.n
}

// sharedNoise is what several buckets saw. A change that all of them see is in one difference of each, at about the same time. Were each
// taken for one of its own, those of forty buckets would teach that such a step is noise, and the better the more there are, before a
// single chart has found it. So of each length, differences are one in the mean until a bucket has its second among them.
type sharedNoise [noiseLengths]struct {
	noiseScale
	sum   float64 // of those that are under way
	n     int
	round uint32 // bucket's number of it: it is among them
}

func (s *sharedNoise) add(i int, squared float64, round *uint32) {
	at := &s[i]
	if at.n > 0 && *round == at.round {
		at.noiseScale.add(at.sum/float64(at.n), math.Sqrt(float64(at.n)))
		at.sum, at.n = 0, 0
	}
	if at.n == 0 {
		at.round++
	}
	at.sum, at.n, *round = at.sum+squared, at.n+1, at.round
}

// noisePair is two neighbouring sums of one length, the second under way.
type noisePair struct {
	first float64
	half  bool // first is there
}

const (
	noiseLengths = 7   // sums of 1 to 64 calls: what comes and goes within as many is noise, what stays is a change
	noiseMemory  = 64  // differences that an estimate averages: noise that has gone is forgotten
	noisePrior   = 4   // differences that independence counts for,
	noiseShared  = 16  // and at most what the fabric's other buckets have seen
	noiseDoubt   = 3.5 // standard errors by which sums must vary more than independent ones to be believed
)

// add takes in one standardised residual.
func (s *sumNoise) add(z float64) {
	sum := z
	for i := range s.pairs {
		p := &s.pairs[i]
		if p.half = !p.half; p.half {
			p.first = sum
			return
		}
		excess, _ := s.excess(i)
		d := clamp((sum-p.first)/math.Sqrt(float64(uint(2)<<i)), winsorAt*math.Sqrt(1+excess))
		s.scales[i].add(d*d, 1)
		if s.fabric != nil {
			s.fabric.add(i, d*d, &s.rounds[i])
		}
		sum += p.first
	}
}

// excess is the estimate at one length and its standard error, if residuals were independent and normal.
func (s *sumNoise) excess(i int) (mean, se float64) {
	own, shared := &s.scales[i], noiseScale{}
	if s.fabric != nil {
		shared = s.fabric[i].noiseScale
	}
	borrowed := math.Min(shared.n, noiseShared)
	n := noisePrior + borrowed + own.n
	return (borrowed*shared.excess + own.n*own.excess) / n, math.Sqrt(2 / n)
}

// inflation is by how much sums vary more than independent ones, beyond doubt; at least 1.
func (s *sumNoise) inflation() float64 {
	most := 0.0
	for i := range s.scales {
		if excess, se := s.excess(i); excess > noiseDoubt*se {
			most = math.Max(most, excess)
		}
	}
	return math.Max(s.least, 1+most)
}

// interrupt begins new sums: the calls to come are judged against other expectations.
func (s *sumNoise) interrupt() { s.pairs = [noiseLengths]noisePair{} }
