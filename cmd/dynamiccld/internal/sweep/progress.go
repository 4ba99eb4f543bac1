package sweep

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pterm/pterm"

	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/cmd/internal/bar"
	"dynamiccl/state"
)

// Times between two showings.
const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 10 * time.Second
)

// guess is the number of points of a bucket before any is known: Ring and Tree, three protocols, seven counts.
const guess = 45

// progress shows how far the sweep is and when it ends: a bar on a terminal, a line now and then elsewhere.
type progress struct {
	out         io.Writer
	now         func() time.Time
	bar         *pterm.ProgressbarPrinter // nil: no terminal
	began, last time.Time
	buckets     map[string]int // that are still to come, by collective
	known       map[string]int // points of a bucket, by collective
	left        int            // points of this bucket
	done        int            // points of this run
	where       string
	collective  string
}

func newProgress(o *Options, d *Description) *progress {
	p := &progress{out: o.Progress, now: o.Now, buckets: map[string]int{}, known: map[string]int{}}
	for _, c := range o.Collectives {
		p.buckets[c] += len(o.Sizes) * o.Rounds
	}
	p.began = p.now()
	p.last = p.began
	id := d.Identity
	fmt.Fprintf(p.out, "%s, NCCL %s, %s, %s, %s, %s, %s calls, into %s\n", id.Machine, id.NCCL, units.Count(id.Ranks, "rank"), units.Count(id.Nodes, "node"), id.Transport,
		id.Condition, id.Calls, o.Out)
	if text := id.Shared(); text != "" {
		fmt.Fprintln(p.out, text)
	}
	if o.Terminal {
		p.bar = bar.New(o.Progress, 1)
	}
	return p
}

// skip passes over a bucket that is measured already.
func (p *progress) skip(collective string) { p.buckets[collective]-- }

// bucket begins one with so many points.
func (p *progress) bucket(round int, collective string, bytes uint64, points int) {
	p.buckets[collective]--
	p.known[collective] = points
	p.left, p.collective = points, collective
	p.where = fmt.Sprintf("%s %s", collective, state.FormatBytes(bytes))
	if round > 1 {
		p.where = fmt.Sprintf("round %d, %s", round, p.where)
	}
}

// toCome estimates how many points are left.
func (p *progress) toCome() int {
	n := p.left
	for c, buckets := range p.buckets {
		of, ok := p.known[c]
		if !ok {
			if of, ok = p.known[p.collective]; !ok {
				of = guess
			}
			if strings.HasPrefix(c, AllToAll) { // on whatever memory
				of = 1
			}
		}
		n += buckets * of
	}
	return n
}

// point ends one.
func (p *progress) point() {
	p.done++
	p.left--
	now := p.now()
	every := lineEvery
	if p.bar != nil {
		every = barEvery
	}
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	left := p.toCome()
	eta := (now.Sub(p.began) / time.Duration(p.done) * time.Duration(left)).Round(time.Second)
	if p.bar == nil {
		fmt.Fprintf(p.out, "%s: %d points done, about %d to come, %v left\n", p.where, p.done, left, eta)
		return
	}
	p.bar.Total, p.bar.Current = p.done+left, p.done
	p.bar.UpdateTitle(fmt.Sprintf("%s, %v left", p.where, eta))
}

// failed says at once which point gave no row, but for what NCCL overruled: that is common, and in the journal.
func (p *progress) failed(x *Point) {
	if x.Outcome == OutcomeOverruled || x.Outcome == OutcomeUnseen {
		return
	}
	p.end()
	reason, _, _ := strings.Cut(x.Reason, "\n")
	fmt.Fprintf(p.out, "%s %s %s: %s: %s\n", x.Collective, state.FormatBytes(x.Bytes), x.Action, x.Outcome, reason)
}

// end makes place for a message.
func (p *progress) end() {
	if p.bar != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
