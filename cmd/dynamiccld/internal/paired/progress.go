package paired

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pterm/pterm"

	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/cmd/internal/bar"
)

// Times between two showings.
const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 10 * time.Second
)

// progress shows how far the run is: a bar on a terminal, a line now and then elsewhere. How long it takes is known.
type progress struct {
	out         io.Writer
	bar         *pterm.ProgressbarPrinter // nil: no terminal
	phases      []Phase
	before      time.Duration // of phases that are over
	began, last time.Time     // of the phase; of the last showing
	now         int           // phase
}

func newProgress(o *Options) *progress {
	p := &progress{out: o.Progress, phases: o.Phases}
	if o.Terminal {
		p.bar = bar.New(o.Progress, 1)
	}
	return p
}

func (p *progress) total() (all time.Duration) {
	for _, phase := range p.phases {
		all += phase.For
	}
	return all
}

func (p *progress) begin(h Head) {
	id := h.Machine.Identity
	names := make([]string, len(h.Arms))
	for i, a := range h.Arms {
		names[i] = a.Name
	}
	p.say("%s, NCCL %s, %s, %s, arms %s, %v", id.Machine, id.NCCL, units.Count(id.Ranks, "rank"), units.Count(id.Nodes, "node"), strings.Join(names, ", "), p.total())
	if text := id.Shared(); text != "" {
		p.say("%s", text)
	}
}

// say writes a line.
func (p *progress) say(format string, args ...any) {
	p.end()
	fmt.Fprintf(p.out, format+"\n", args...)
}

func (p *progress) phase(index int, phase Phase) {
	p.now, p.before = index, 0
	for _, earlier := range p.phases[:index] {
		p.before += earlier.For
	}
	p.began = time.Now()
	p.last = p.began
	p.say("phase %d of %d: %s for %v", index+1, len(p.phases), phase.Name(), phase.For)
}

// step comes after each point.
func (p *progress) step() {
	now, every := time.Now(), lineEvery
	if p.bar != nil {
		every = barEvery
	}
	if now.Sub(p.last) < every {
		return
	}
	p.last = now
	phase := p.phases[p.now]
	done := p.before + min(now.Sub(p.began), phase.For)
	left := (p.total() - done).Round(time.Second)
	if p.bar == nil {
		fmt.Fprintf(p.out, "phase %d of %d, %s: %v left\n", p.now+1, len(p.phases), phase.Name(), left)
		return
	}
	p.bar.Total, p.bar.Current = int(p.total().Milliseconds()), int(done.Milliseconds())
	p.bar.UpdateTitle(fmt.Sprintf("phase %d of %d, %s, %v left", p.now+1, len(p.phases), phase.Name(), left))
}

// end makes place for a message.
func (p *progress) end() {
	if p.bar != nil {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}
