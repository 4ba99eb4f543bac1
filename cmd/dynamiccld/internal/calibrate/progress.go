package calibrate

import (
	"fmt"
	"io"
	"time"

	"github.com/pterm/pterm"

	"dynamiccl/cmd/internal/bar"
)

// Times between two showings.
const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 5 * time.Second
)

// progress shows how many sizes are settled and how long it may still take: a bar on a terminal, a line now and then
// elsewhere.
type progress struct {
	out  io.Writer
	now  func() time.Time
	bar  *pterm.ProgressbarPrinter // nil: no terminal
	ends time.Time
	last time.Time
}

func newProgress(o *Options, began time.Time) *progress {
	p := &progress{out: o.Progress, now: o.Now, ends: began.Add(o.Budget), last: began}
	if o.Terminal {
		p.bar = bar.New(o.Progress, 1)
	}
	return p
}

// left is the time that is left at most.
func (p *progress) left() time.Duration { return max(0, p.ends.Sub(p.now()).Round(time.Second)) }

func (p *progress) starting(at target) {
	p.say("%s: the ranks start, at most %v left", at, p.left())
}

// point is called after each measurement.
func (p *progress) point(t *tuning) {
	now, every := p.now(), lineEvery
	if p.bar != nil {
		every = barEvery
	}
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	done := 0
	for _, b := range t.buckets {
		if b.done {
			done++
		}
	}
	text := fmt.Sprintf("%s: %d measurements, %d of %d sizes settled, at most %v left", t.at, t.points, done, len(t.buckets), p.left())
	if p.bar == nil {
		fmt.Fprintln(p.out, text)
		return
	}
	p.bar.Total, p.bar.Current = len(t.buckets), done
	p.bar.UpdateTitle(text)
}

func (p *progress) say(format string, args ...any) {
	p.end()
	fmt.Fprintf(p.out, format+"\n", args...)
}

// end makes place for a message.
func (p *progress) end() {
	if p.bar != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
