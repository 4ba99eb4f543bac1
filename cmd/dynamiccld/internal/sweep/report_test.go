package sweep

import (
	"bytes"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// A sweep that goes on with more choices says of each size what one says that had them all at once.
func TestReportOfMoreChoices(t *testing.T) {
	var reports [2]string
	for i, steps := range [][]string{{""}, {"ring", ""}} {
		w := newWorld(t)
		o := w.options()
		o.Collectives, o.Sizes = []string{"AllReduce", "AllGather"}, []uint64{1024, 4096}
		for _, choice := range steps {
			report := new(bytes.Buffer)
			o.Choices, o.Report = nil, report
			if choice != "" {
				p, err := ParsePattern(choice)
				if err != nil {
					t.Fatal(err)
				}
				o.Choices = []Pattern{p}
			}
			if err := w.sweep(o); err != nil {
				t.Fatal(err)
			}
			reports[i], _, _ = strings.Cut(report.String(), " rows in ")
			readTable(t, o.Out)
		}
	}
	if reports[1] != reports[0] || !strings.Contains(reports[0], "Tree/") {
		t.Errorf("at once\n%s\nin two steps\n%s", reports[0], reports[1])
	}
}

// The best of forty points is better than the mean of three others also where nothing is: such gains are marked, and others are not.
func TestScatterIsNoGain(t *testing.T) {
	for _, c := range []struct {
		flat        bool
		sd          float64
		least, most int // marked, of 28 sizes of which about half have a better choice
		certain     int // at least, that are not
	}{{true, 0.02, 24, 28, 0}, {false, 0.002, 0, 3, 10}, {false, 0, 0, 0, 10}} {
		w := newWorld(t)
		rng := rand.New(rand.NewPCG(1, 1))
		w.flat, w.scatter = c.flat, func() float64 { return math.Exp(c.sd * rng.NormFloat64()) }
		o := w.options()
		o.Collectives = []string{"AllReduce", "AllGather", "ReduceScatter", "Broadcast"}
		report := new(bytes.Buffer)
		o.Report = report
		if err := w.sweep(o); err != nil {
			t.Fatal(err)
		}
		marked, certain := 0, 0
		for line := range strings.Lines(report.String()) {
			fields := strings.Fields(line)
			switch n := len(fields); {
			case strings.HasSuffix(line, "x ?\n"):
				marked++
			case n > 1 && strings.HasSuffix(fields[n-1], "x") && fields[n-1] > "1.00x":
				certain++
			}
		}
		if marked < c.least || marked > c.most || certain < c.certain || c.flat && certain > 3 || strings.Contains(report.String(), "? no gain beyond doubt") != (marked > 0) {
			t.Errorf("flat %v, sd %g: %d are marked and %d are not\n%s", c.flat, c.sd, marked, certain, report)
		}
	}
}
