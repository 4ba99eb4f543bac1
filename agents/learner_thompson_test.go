package agents

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Draws must have the model's covariance: neighbours are good or bad together.
func TestThompsonDrawsTogether(t *testing.T) {
	set := fullSet()
	s := newThompson(Task{Set: set, Bucket: bucketOf(12), Rand: rand.New(rand.NewPCG(1, 1))}).(*thompson)
	s.Observe(seen(set[0], 1000))
	s.Observe(seen(set[find(t, set, "Ring/LL/8")], 900))
	s.refresh(0.05)
	s.factor()
	n := s.model.n
	for i := range n {
		for j := range i + 1 {
			c := 0.0
			for k := range j + 1 {
				c += s.root[i*n+k] * s.root[j*n+k]
			}
			if math.Abs(c-s.model.cov[i*n+j]) > 1e-6 {
				t.Fatalf("covariance of %s and %s: %f by the factor, %f by the model", set[i], set[j], c, s.model.cov[i*n+j])
			}
		}
	}
}

// Each action is drawn the more often the likelier it is the best; what was measured to be bad hardly ever.
func TestThompsonMatchesProbability(t *testing.T) {
	set := fullSet()
	s := newThompson(Task{Set: set, Bucket: bucketOf(12), Rand: rand.New(rand.NewPCG(1, 1))}).(*thompson)
	good, bad := find(t, set, "Ring/LL/8"), find(t, set, "Ring/Simple/8")
	for range 8 {
		s.Observe(seen(set[0], 1000))
		s.Observe(seen(set[good], 600))
		s.Observe(seen(set[bad], 3000))
	}
	s.refresh(0.05)
	s.factor()
	count := make([]int, len(set))
	for range 2000 {
		count[s.draw()]++
	}
	if count[bad] > 2 || count[0] > 2 || count[good] < 20 {
		t.Errorf("drawn %d times the good one, %d the bad one, %d the default", count[good], count[bad], count[0])
	}
}

func TestThompsonStops(t *testing.T) {
	set := fullSet()[:3]
	s := newThompson(Task{Set: set, Bucket: bucketOf(12), Rand: rand.New(rand.NewPCG(1, 1))}).(*thompson)
	s.Observe(seen(set[0], 1000))
	s.refresh(0.05)
	if !s.hopeful(s.least()) {
		t.Error("no hope before anything is tried")
	}
	for range 32 {
		s.Observe(seen(set[0], 1000))
		s.Observe(seen(set[1], 800))
		s.Observe(seen(set[2], 1200))
	}
	s.refresh(0.05)
	if best := s.least(); best != 1 || s.hopeful(best) {
		t.Errorf("best %d, still hopeful %v", best, s.hopeful(best))
	}
}
