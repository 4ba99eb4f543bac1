package agents

import (
	"math"

	"dynamiccl/actions"
)

// siblings are actions of a set that differ in channels and threads alone. What the network got wrong about one of them it
// mostly got wrong about all, so a measurement moves the others by how the network missed it (a Gaussian process over the
// network's errors).
type siblings struct {
	members []int     // of the set
	alike   []float64 // [M,M]: correlation of the network's errors
	cov     []float64 // [M,M], scratch
	gain    []float64 // [M], scratch
}

// What siblings' errors share, and over how many octaves of channels or threads that is lost. On held-out socket tables
// any share from 0.4 to 0.8 lost less in 64 calls than none; 0.6 was the best of four policies' mean.
const (
	siblingShare   = 0.6
	siblingOctaves = 4
)

// newSiblings gives the families of a set, in its order; the default is in none.
func newSiblings(set []actions.Action) []siblings {
	var out []siblings
	at := map[actions.Action]int{}
	for i, a := range set {
		if i == 0 {
			continue
		}
		k, known := at[a.Kind()]
		if !known {
			k = len(out)
			at[a.Kind()], out = k, append(out, siblings{})
		}
		out[k].members = append(out[k].members, i)
	}
	for k := range out {
		f := &out[k]
		m := len(f.members)
		f.alike, f.cov, f.gain = make([]float64, m*m), make([]float64, m*m), make([]float64, m)
		for i, a := range f.members {
			for j, b := range f.members {
				c := 5 * (octaves(set[a].Channels) - octaves(set[b].Channels)) / siblingOctaves
				w := 5 * (octaves(set[a].Warps) - octaves(set[b].Warps)) / siblingOctaves
				f.alike[i*m+j] = siblingShare * math.Exp(-c*c-w*w)
			}
			f.alike[i*m+i] = 1
		}
	}
	return out
}

// conclude turns what the network expects of a family into mean and variance with all of its own measurements counted,
// by Bayes' rule.
func (l *lstm) conclude(f *siblings, stretch, sigma float64) {
	m := len(f.members)
	for i, a := range f.members {
		l.mean[a] = l.net.mean[a]
		for j, b := range f.members {
			f.cov[i*m+j] = f.alike[i*m+j] * stretch * math.Sqrt(l.prior[a]*l.prior[b])
		}
	}
	for i, a := range f.members {
		relative, precision := l.measured(a, sigma)
		if precision *= l.net.trust[a]; precision <= 0 {
			continue
		}
		row := f.cov[i*m : (i+1)*m]
		miss, noise := relative-l.mean[a], 1/precision
		if miss*miss > surprised*surprised*(row[i]+noise) {
			row[i] = miss * miss // the network did not know what it thought it knew
		}
		total := row[i] + noise
		for j, b := range f.members {
			f.gain[j] = row[j] / total
			l.mean[b] += f.gain[j] * miss
		}
		for j := range f.members {
			if j != i {
				for k := range f.members {
					f.cov[j*m+k] -= f.gain[j] * row[k]
				}
			}
		}
		for k := range row { // last, for the others need it as it was
			row[k] *= noise / total
		}
	}
	for i, a := range f.members {
		l.variance[a] = f.cov[i*m+i]
	}
}

// surprised is how many standard deviations off a measurement must be to overrule what the network is sure of.
const surprised = 2
