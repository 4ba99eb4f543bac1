package tuner

// How a GPU's clock is held against the host's (docs/design.md, decision 6). On 4x H200 GPU clocks of one host were up
// to 0.4 ms apart and drifted by up to 8.2 us a second against each other, evenly to 0.1 us a second.
const (
	clockSlots   = 16
	clockSlotNs  = 64_000_000 // of GPU time; in each the sample that was told soonest counts
	clockMemory  = 8_000_000_000
	clockMinimum = 8    // samples before the clock is believed
	clockLate    = 64   // samples in a row of slots that are over: one was far ahead of its time, or the clock was set back
	clockMaxRate = 2e-5 // oscillators are better than 20 ppm; a steeper line is noise
)

// rankClock converts one rank's GPU time to the host's. Every sample says by how much the host's clock was ahead when
// the host heard of a kernel, which is the clocks' difference and the time that telling took, never less than none. So
// the difference is a straight line below all points and as near to them as can be (Moon, Skelly and Towsley, INFOCOM
// 1999: estimation and removal of clock skew from network delay measurements).
type rankClock struct {
	points  [clockSlots]clockPoint // oldest first
	n       int
	samples int
	late    int        // in a row
	base    clockPoint // points count from here, so that float64 holds them exactly
	at      float64    // the line: difference at time 0 of base ...
	rate    float64    // ... and what it grows by in a nanosecond
}

type clockPoint struct {
	gpuNs   int64
	aheadNs int64
}

// known says that enough was heard to believe toHost.
func (c *rankClock) known() bool { return c.samples >= clockMinimum }

// toHost converts an instant.
func (c *rankClock) toHost(gpuNs int64) int64 {
	return gpuNs + c.base.aheadNs + int64(c.at+c.rate*float64(gpuNs-c.base.gpuNs))
}

// hear takes in that the host was at most aheadNs ahead at gpuNs.
func (c *rankClock) hear(gpuNs, aheadNs int64) {
	p := clockPoint{gpuNs, aheadNs}
	if c.n == 0 {
		c.base = p
	}
	c.samples++
	last := max(0, c.n-1)
	switch {
	case c.n > 0 && gpuNs/clockSlotNs < c.points[last].gpuNs/clockSlotNs:
		if c.late++; c.late < clockLate {
			return // a straggler of a slot that is over
		}
		*c = rankClock{samples: 1, base: p}
		c.open(p)
	case c.n > 0 && gpuNs/clockSlotNs == c.points[last].gpuNs/clockSlotNs:
		if aheadNs >= c.points[last].aheadNs {
			c.late = 0
			return
		}
		c.points[last] = p
	default:
		c.open(p)
	}
	c.late = 0
	c.fit()
}

// open begins a slot and forgets what is too old for it.
func (c *rankClock) open(p clockPoint) {
	old := 0
	for old < c.n && (c.n-old == clockSlots || p.gpuNs-c.points[old].gpuNs > clockMemory) {
		old++
	}
	copy(c.points[:], c.points[old:c.n])
	c.n -= old
	c.points[c.n] = p
	c.n++
}

// fit finds the line: the edge of the points' lower hull above which their middle lies has the least sum of distances.
func (c *rankClock) fit() {
	var hull [clockSlots]int
	n, middle := 0, 0.0
	for i := range c.n {
		for n > 1 && !c.turnsUp(hull[n-2], hull[n-1], i) {
			n--
		}
		hull[n] = i
		n++
		x, _ := c.point(i)
		middle += x / float64(c.n)
	}
	right := 1
	for ; right < n-1; right++ {
		if x, _ := c.point(hull[right]); x >= middle {
			break
		}
	}
	c.rate = 0
	if n > 1 {
		x0, y0 := c.point(hull[right-1])
		x1, y1 := c.point(hull[right])
		c.rate = max(-clockMaxRate, min(clockMaxRate, (y1-y0)/(x1-x0)))
	}
	for i := range n { // a rate that was cut turns the line: it must stay below all of them
		x, y := c.point(hull[i])
		if below := y - c.rate*x; i == 0 || below < c.at {
			c.at = below
		}
	}
}

func (c *rankClock) point(i int) (x, y float64) {
	return float64(c.points[i].gpuNs - c.base.gpuNs), float64(c.points[i].aheadNs - c.base.aheadNs)
}

func (c *rankClock) turnsUp(a, b, d int) bool {
	ax, ay := c.point(a)
	bx, by := c.point(b)
	dx, dy := c.point(d)
	return (bx-ax)*(dy-ay)-(by-ay)*(dx-ax) > 0
}
