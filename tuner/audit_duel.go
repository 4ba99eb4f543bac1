package tuner

import (
	"math"
	"math/rand/v2"
	"slices"
)

// duel compares steps under what is in force with steps under the other way, what was chosen or NCCL's default. Blocks of steps come in
// pairs, one block of each, and a coin says which one is first. Where the two ways are equal the sign of a pair's difference is then
// that of the coin, whatever the noise is: however steps depend on those before them, drift, or stray. So fair bets on signs win nothing
// in the mean, and that they ever come to 1/p of the stake has probability p or less (Ville 1939): it may be looked at behind each pair.
type duel struct {
	coin   *rand.Rand
	plain  bool // NCCL's default is the other way; else it is in force, and what was chosen the other way
	other  bool // the block under way is of the other way
	second bool // of its pair
	first  float64
	differ []float64 // in force over the other way, logarithms, by pairs

	longer bets // that steps are longer with what is in force
	fine   bets // that they are not, or hardly
}

const (
	duelLeast   = 0.001 // steps are longer by more than this,
	duelMost    = 0.002 // or not by as much
	duelSure    = 1000  // one false verdict in as many duels of equals
	duelFine    = 20    // what stays in force needs no more
	duelPairs   = 40
	duelConfirm = 1.96 // standard errors of a sign, for people
)

// outcome is what a duel has come to.
type outcome uint8

const (
	undecided outcome = iota
	worse             // steps are longer with what is in force
	asGood            // they are not
	unshown           // neither could be shown
)

func newDuel(plain bool, seed, number uint64) *duel {
	d := &duel{plain: plain, coin: rand.New(rand.NewPCG(seed, number))}
	d.other = d.heads()
	return d
}

func (d *duel) heads() bool { return d.coin.Uint64()&1 == 1 }

// byDefault says that the block under way is one of NCCL's default.
func (d *duel) byDefault() bool { return d.other == d.plain }

// block takes in what the block under way came to, as a logarithm. The next one is under way then.
func (d *duel) block(logNs float64) outcome {
	if !d.second {
		d.first, d.second, d.other = logNs, true, !d.other
		return undecided
	}
	x := d.first - logNs
	if !d.other {
		x = -x
	}
	d.differ = append(d.differ, x)
	d.second, d.other = false, d.heads()
	d.longer.take(x - duelLeast)
	d.fine.take(duelMost - x)
	switch {
	case d.longer.worth() >= duelSure:
		return worse
	case d.fine.worth() >= duelFine:
		return asGood
	case len(d.differ) >= duelPairs:
		return unshown
	}
	return undecided
}

// chosen is by how much steps were longer with what was chosen than with NCCL's default: the median of pairs and, of 95%, an interval that
// takes nothing for granted but that pairs are alike.
func (d *duel) chosen() (middle, low, high float64) {
	v := slices.Clone(d.differ)
	n := len(v)
	if n == 0 {
		return 0, 0, 0
	}
	if !d.plain {
		for i := range v {
			v[i] = -v[i]
		}
	}
	slices.Sort(v)
	k := max(0, int((float64(n)-duelConfirm*math.Sqrt(float64(n)))/2))
	return math.Expm1((v[(n-1)/2] + v[n/2]) / 2), math.Expm1(v[k]), math.Expm1(v[n-1-k])
}

// bets are what a stake of 1 has become by betting that differences are above 0. A bet grows with the difference up to what half of the
// earlier ones reached, and is never above the stake: so the bets are fair where differences are as likely below 0 as above, by as much,
// lose in the mean where they lie lower, and a pause counts for no more than any other difference. Nobody knows how much to bet, so
// as much of the stake goes to each of several shares.
type bets struct {
	won  [len(betShares)]float64 // logarithms
	past []float64               // differences without their signs, sorted
}

var betShares = [...]float64{0.125, 0.25, 0.5, 0.99}

func (b *bets) take(x float64) {
	far := math.Abs(x)
	if n := len(b.past); n > 0 && far > 0 {
		part := math.Copysign(1, x)
		if usual := b.past[n/2]; far < usual {
			part = x / usual
		}
		for i, share := range betShares {
			b.won[i] += math.Log1p(share * part)
		}
	}
	at, _ := slices.BinarySearch(b.past, far)
	b.past = slices.Insert(b.past, at, far)
}

func (b *bets) worth() (sum float64) {
	for _, won := range b.won {
		sum += math.Exp(won) / float64(len(betShares))
	}
	return sum
}

// middle is the mean of the middle half, which a pause or two do not move. It sorts v.
func middle(v []float64) (mean float64) {
	slices.Sort(v)
	cut := len(v) / 4
	v = v[cut : len(v)-cut]
	for _, x := range v {
		mean += x / float64(len(v))
	}
	return mean
}
