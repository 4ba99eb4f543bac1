package agents

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"dynamiccl/actions"
)

func TestSiblingsDifferInChannelsAndThreadsAlone(t *testing.T) {
	set := fullSet()
	count := map[int]int{}
	for _, f := range newSiblings(set) {
		first := set[f.members[0]]
		for _, i := range f.members {
			count[i]++
			a := set[i]
			a.Channels, a.Warps = first.Channels, first.Warps
			if a != first {
				t.Errorf("%s and %s are taken for siblings", set[i], first)
			}
		}
	}
	for i := range set {
		if want := min(i, 1); count[i] != want {
			t.Errorf("%s is in %d families, want %d", set[i], count[i], want)
		}
	}
}

// What one call after the other concludes is what Bayes' rule says of all of them at once.
func TestConclusionIsBayes(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	const sigma, stretch = 0.05, 1.7
	l := makeLearner(t, NameLSTM, fullSet(), bucketOf(12), nil, 1).(*lstm)
	f := slices.MaxFunc(l.families, func(a, b siblings) int { return len(a.members) - len(b.members) })
	m := len(f.members)
	l.Observe(seen(actions.Default, 1e5))
	l.writeContext() // nothing but a look
	for i, a := range f.members {
		l.net.mean[a], l.prior[a], l.net.trust[a] = 0.1*rng.NormFloat64(), 0.04+0.1*rng.Float64(), 0.3+0.7*rng.Float64()
		for range i % 3 {
			l.arms.add(ptr(seen(l.set[a], 1e5*math.Exp(l.net.mean[a]+0.1*rng.NormFloat64()))))
		}
	}
	l.conclude(&f, stretch, sigma)

	prior := mat.NewSymDense(m, nil)
	var tried []int
	for i, a := range f.members {
		for j, b := range f.members {
			c := 5 * (octaves(l.set[a].Channels) - octaves(l.set[b].Channels)) / siblingOctaves
			rho := siblingShare * math.Exp(-c*c)
			if i == j {
				rho = 1
			}
			prior.SetSym(i, j, rho*stretch*math.Sqrt(l.prior[a]*l.prior[b]))
		}
		if l.arms.samples[a].n > 0 {
			tried = append(tried, i)
		}
	}
	k := mat.NewDense(m, len(tried), nil)
	s := mat.NewDense(len(tried), len(tried), nil)
	r := mat.NewVecDense(len(tried), nil)
	for x, i := range tried {
		relative, precision := l.measured(f.members[i], sigma)
		r.SetVec(x, relative-l.net.mean[f.members[i]])
		for y, j := range tried {
			s.Set(x, y, prior.At(i, j))
		}
		s.Set(x, x, prior.At(i, i)+1/(precision*l.net.trust[f.members[i]]))
		for j := range m {
			k.Set(j, x, prior.At(j, i))
		}
	}
	var inverse, gain, shift, less mat.Dense
	if err := inverse.Inverse(s); err != nil {
		t.Fatal(err)
	}
	gain.Mul(k, &inverse)
	shift.Mul(&gain, r)
	less.Mul(&gain, k.T())
	for i, a := range f.members {
		mean, variance := l.net.mean[a]+shift.At(i, 0), prior.At(i, i)-less.At(i, i)
		if math.Abs(l.mean[a]-mean) > 1e-9 || math.Abs(l.variance[a]-variance) > 1e-9 {
			t.Errorf("%s: %g, variance %g; Bayes' rule says %g, %g", l.set[a], l.mean[a], l.variance[a], mean, variance)
		}
	}
	if len(tried) < 2 || len(tried) == m {
		t.Fatalf("%d of %d measured: shows nothing", len(tried), m)
	}
}

// A measurement that the network was sure could not be overrules it.
func TestSurpriseOverrulesTheNetwork(t *testing.T) {
	l := makeLearner(t, NameLSTM, fullSet(), bucketOf(12), nil, 1).(*lstm)
	l.Observe(seen(actions.Default, 1e5))
	f := l.families[0]
	for _, a := range f.members {
		l.net.mean[a], l.prior[a], l.net.trust[a] = 0, 0.0001, 1
	}
	a := f.members[0]
	l.arms.add(ptr(seen(l.set[a], 2e5)))
	l.conclude(&f, 1, 0.05)
	if math.Abs(l.mean[a]-math.Log(2)) > 0.02 {
		t.Errorf("measured twice the default, concluded %.3f of it", math.Exp(l.mean[a]))
	}
}

func ptr[T any](x T) *T { return &x }
