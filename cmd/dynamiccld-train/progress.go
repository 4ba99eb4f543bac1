package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pterm/pterm"
	"golang.org/x/term"

	"dynamiccl/cmd/internal/bar"
)

// progress shows how far training is: a bar on a terminal, a line now and then elsewhere.
type progress struct {
	out         io.Writer
	now         func() time.Time
	total       int
	first       int // update that this process began after
	began, last time.Time
	bar         *pterm.ProgressbarPrinter // nil: no terminal
	quiet       bool
}

// Times between two showings.
const (
	barEvery  = 200 * time.Millisecond
	lineEvery = 10 * time.Second
)

func newProgress(p *program, o options, first int) *progress {
	s := &progress{out: p.stderr, now: p.now, total: o.recipe.Updates, first: first, quiet: o.quiet}
	s.began = s.now()
	s.last = s.began
	if file, ok := p.stderr.(*os.File); ok && !o.quiet && term.IsTerminal(int(file.Fd())) {
		s.bar = bar.New(file, s.total)
	}
	return s
}

// show is called after every update.
func (s *progress) show(update int, loss float64, t trainer) {
	now := s.now()
	every := lineEvery
	if s.bar != nil {
		every = barEvery
	}
	if s.quiet || now.Sub(s.last) < every {
		return
	}
	s.last = now
	perSecond := float64(update-s.first) / max(1e-9, now.Sub(s.began).Seconds())
	left := time.Duration(float64(s.total-update) / perSecond * float64(time.Second)).Round(time.Second)
	regret := "not yet"
	if _, best := t.Best(); isFinite(best) {
		regret = fmt.Sprintf("%.3f", best)
	}
	if s.bar == nil {
		fmt.Fprintf(s.out, "update %d of %d, %.1f a second, loss %.4f, best validation regret %s, %s left\n",
			update, s.total, perSecond, loss, regret, left)
		return
	}
	s.bar.Current = update
	s.bar.UpdateTitle(fmt.Sprintf("%.1f/s loss %.3f regret %s left %s", perSecond, loss, regret, left))
}

// clear makes place for a message.
func (s *progress) clear() {
	if s.bar != nil {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
}

// end leaves the line.
func (s *progress) end() { s.clear() }
