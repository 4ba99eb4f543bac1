package paired

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestRatioOf(t *testing.T) {
	// Of 10 values the sign test's interval leaves out one on each side: P(X <= 1) is 0.0107, P(X <= 2) 0.0547.
	r := ratioOf([]float64{1.9, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.0})
	if r.Median != 1.45 || r.Low == nil || *r.Low != 1.1 || *r.High != 1.8 {
		t.Errorf("%s", r)
	}
	if r := ratioOf([]float64{2, 1, 3, 5, 4}); r.Median != 3 || r.Low != nil || r.High != nil {
		t.Errorf("of five values there is no interval: %s", r)
	}
	if r := ratioOf([]float64{6, 1, 2, 3, 4, 5}); r.Median != 3.5 || *r.Low != 1 || *r.High != 6 {
		t.Errorf("of six values all: %s", r)
	}
}

// The interval holds the truth as often as it says, and gets narrow.
func TestRatioOfCovers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const runs, rounds, truth = 2000, 60, 1.2
	held, width := 0, 0.0
	for range runs {
		var all []float64
		for range rounds {
			all = append(all, truth*math.Exp(0.1*random.NormFloat64()))
		}
		r := ratioOf(all)
		if *r.Low <= truth && truth <= *r.High {
			held++
		}
		width += (*r.High - *r.Low) / runs
	}
	if share := float64(held) / runs; share < 0.95 || share > 0.985 {
		t.Errorf("%.3f of the intervals hold the truth, want 0.95 or a little more", share)
	}
	if width < 0.04 || width > 0.1 {
		t.Errorf("they are %.3f wide on average", width)
	}
}

// made is a series of two arms whose second is as many times as fast.
func made(p Point, base float64, speedUps ...float64) *series {
	s := &series{Point: p, us: make([][]float64, 2), mean: make([][]float64, 2)}
	for i, x := range speedUps {
		s.at = append(s.at, float64(i+1))
		for arm, us := range []float64{base * float64(i+1), base * float64(i+1) / x} { // the machine gets slower, for both
			s.us[arm] = append(s.us[arm], us)
			s.mean[arm] = append(s.mean[arm], us)
		}
	}
	return s
}

func TestSummarize(t *testing.T) {
	slow := []float64{0.5, 1, 1, 1, 1, 1, 1, 4, 4, 4, 4, 4, 4, 4}
	all := []*series{made(Point{"AllReduce", 1024}, 10, slow...), made(Point{"AllGather", 1024}, 20, slices.Repeat([]float64{1}, 14)...)}
	p := summarize([]string{"plain", "run"}, 14, all)
	if p.Rounds != 14 || p.Points[0].Rounds != 8 || p.Points[0].Us["plain"] != 105 {
		t.Errorf("%d rounds, %+v", p.Rounds, p.Points[0])
	}
	if r := p.Points[0].Ratio["run"]; r.Median != 4 {
		t.Errorf("ratio of the last half %s", r)
	}
	if r := p.Geomean["run"]; r.Median != 2 {
		t.Errorf("geometric mean of 4 and 1: %s", r)
	}
	if r := p.Collective["AllGather"]["run"]; r.Median != 1 || *r.Low != 1 || *r.High != 1 {
		t.Errorf("AllGather: %s", r)
	}
	if w := p.Worst["run"]; w.Collective != "AllGather" || w.Ratio != 1 {
		t.Errorf("worst %+v", w)
	}
	// Sums count, not the mean of ratios: base 1050; arm 20 + 20..70 + 80..140 in quarters.
	want := math.Sqrt(1050 / (20 + 270 + 770.0/4))
	if got := p.Whole["run"]; math.Abs(got-want) > 1e-4 {
		t.Errorf("whole %.4f, want %.4f", got, want)
	}
	if a := p.Adapt["run"]; !a.Settled || a.Seconds == nil || *a.Seconds != 8 {
		t.Errorf("adapted %+v", a)
	}
}

func TestAdapted(t *testing.T) {
	at := func(n int) (all []float64) {
		for i := range n {
			all = append(all, float64(i+1))
		}
		return all
	}
	with := func(head []float64, n int) []float64 {
		return append(head, slices.Repeat([]float64{2}, n-len(head))...)
	}
	for _, c := range []struct {
		what    string
		means   []float64
		seconds float64 // 0: none
		settled bool
	}{
		{"from the start", with(nil, 12), 0, true},
		{"after four rounds", with([]float64{1, 1, 1, 1}, 12), 5, true},
		{"a little below is no matter", with([]float64{1.91, 1.91, 1.91, 1.91}, 12), 0, true},
		{"above is no matter", with([]float64{3, 3, 3, 3}, 12), 0, true},
		{"one disturbed round is no relapse", with([]float64{1, 1, 1, 2, 2, 1}, 18), 5, true},
		{"a relapse counts", with([]float64{1, 2, 2, 2, 2, 1, 1, 1}, 24), 9, true},
		{"below at the end too", []float64{2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 2, 2, 2}, 0, false},
		{"too few rounds", with([]float64{1}, 5), 0, false},
	} {
		got := adapted(at(len(c.means)), c.means, float64(len(c.means)))
		seconds := 0.0
		if got.Seconds != nil {
			seconds = *got.Seconds
		}
		if got.Settled != c.settled || seconds != c.seconds {
			t.Errorf("%s: settled %v after %v s, want %v after %v", c.what, got.Settled, seconds, c.settled, c.seconds)
		}
	}
}

func TestByRoundWithoutTheLastOne(t *testing.T) {
	all := []*series{made(Point{"AllReduce", 1024}, 1, 2, 2, 8), made(Point{"AllReduce", 2048}, 1, 8, 8)}
	at, means := byRound(all, 1)
	if !slices.Equal(at, []float64{1, 2}) || len(means) != 2 || math.Abs(means[0]-4) > 1e-9 {
		t.Errorf("%v %v", at, means)
	}
}

func TestThinKeepsFilesSmall(t *testing.T) {
	if n := every(100, 10, 2); n != 1 {
		t.Errorf("every %d", n)
	}
	step := every(5000, 21, 4)
	if kept := (5000 + step - 1) / step * 21 * 9; kept > mostValues || kept < mostValues/2 {
		t.Errorf("%d values kept in steps of %d", kept, step)
	}
	if got := thin([]float64{1.23456, 2, 12345.6, 4, 0.00123456}, 2); !slices.Equal(got, []float64{1.235, 12350, 0.001235}) {
		t.Errorf("%v", got)
	}
}

func TestSizeOfBatch(t *testing.T) {
	for _, c := range []struct {
		calls   int
		batchMs int64
		us      float64
		comms   int
		want    timing
	}{{40, 100, 10, 1, timing{8, 5}}, {40, 100, 1e6, 1, timing{1, 1}}, {40, 100, 10_000, 1, timing{1, 4}}, {3, 100, 1, 1, timing{1, 3}},
		{40, 100, 1500, 1, timing{8, 5}}, {40, 100, 1500, 3, timing{2, 6}}} { // 3 times 22 calls take 99 ms
		r := &runner{o: &Options{Comms: c.comms, Calls: c.calls, Batch: msec(c.batchMs)}}
		if got := r.size(c.us); got != c.want {
			t.Errorf("%d calls of %v us: %+v, want %+v", c.calls, c.us, got, c.want)
		}
	}
}
