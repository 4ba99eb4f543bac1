package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/state"

	"github.com/pterm/pterm"
)

// view shows the daemon while the ranks run: redrawn in place on a terminal, a line a few seconds otherwise.
type view struct {
	out      io.Writer
	area     *pterm.AreaPrinter // nil: not a terminal
	seconds  int
	lastLine time.Duration
	events   []string
	now      time.Duration // since the ranks started
	trouble  string        // a rank that keeps all from going on, when the daemon was last asked; "": none
}

// plainEvery is the time between two lines when the output is no terminal.
const plainEvery = 4 * time.Second

// rowsShown bounds the redrawn table, so that it fits a small terminal.
const rowsShown = 16

func newView(out io.Writer, redraw bool, seconds int) *view {
	v := &view{out: out, seconds: seconds, lastLine: -plainEvery}
	if redraw {
		if area, err := pterm.DefaultArea.Start(); err == nil {
			v.area = area
		}
	}
	return v
}

func (v *view) close() {
	if v.area != nil {
		_ = v.area.Stop() // only clears the area's own state
	}
}

// event tells something that happened once.
func (v *view) event(text string) {
	line := fmt.Sprintf("%5.1f s  %s", v.now.Seconds(), text)
	if v.area == nil {
		fmt.Fprintln(v.out, line)
		return
	}
	v.events = append(v.events, line)
}

// refresh asks the daemon and shows what it says. A daemon that does not answer in time is shown at the next turn.
func (v *view) refresh(ctx context.Context, client *control.Client) error {
	if v.area == nil && v.now-v.lastLine < plainEvery {
		return nil
	}
	status, err := client.Status(ctx)
	if err != nil {
		return ctx.Err()
	}
	buckets, err := client.Buckets(ctx)
	if err != nil {
		return ctx.Err()
	}
	findings, err := client.Findings(ctx)
	if err != nil {
		return ctx.Err()
	}
	line := oneLine(status, buckets)
	v.trouble = ""
	for _, c := range status.Comms {
		if c.Trouble != "" {
			v.trouble = c.Trouble
			line += "; " + c.Trouble
		}
	}
	if n := len(findings); n > 0 {
		f := findings[n-1]
		line += fmt.Sprintf("; last finding: %s %s: %s: %s", f.Collective, state.FormatBytes(f.MinBytes), f.Diagnosis, f.Text)
	}
	v.show(line, buckets)
	return nil
}

func (v *view) show(line string, buckets []control.Bucket) {
	if v.area == nil {
		v.lastLine = v.now
		fmt.Fprintf(v.out, "%5.1f s  %s\n", v.now.Seconds(), line)
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%.0f of %d s   %s\n\n", v.now.Seconds(), v.seconds, line)
	fmt.Fprintf(&b, "%-10s %-14s %8s  %-18s %8s  %9s  %s\n", "comm", "collective", "size", "choice", "speed-up", "detector", "diagnosis")
	for _, k := range pick(buckets, rowsShown) {
		choice := k.Choice
		if k.Exploring {
			choice += " ?"
		}
		fmt.Fprintf(&b, "%-10.10s %-14s %8s  %-18s %7.2fx  %8.0f%%  %s\n", k.Comm, k.Collective, state.FormatBytes(k.MinBytes), choice,
			k.SpeedUp, 100*max(k.Counter, k.Signal), k.Diagnosis)
	}
	for _, e := range v.events {
		fmt.Fprintln(&b, e)
	}
	v.area.Update(b.String())
}

func oneLine(s control.Status, buckets []control.Bucket) string {
	tuned, exploring := 0, 0
	for _, b := range buckets {
		if b.Choice != "default" {
			tuned++
		}
		if b.Exploring {
			exploring++
		}
	}
	return fmt.Sprintf("%d communicators, %d buckets: %d away from NCCL's default, %d exploring; %d samples, %d plans",
		len(s.Comms), len(buckets), tuned, exploring, s.Samples, s.Publications)
}

// pick thins the buckets out evenly, so that small and large sizes of all collectives are seen.
func pick(all []control.Bucket, most int) []control.Bucket {
	if len(all) <= most {
		return all
	}
	out := make([]control.Bucket, 0, most)
	for i := range most {
		out = append(out, all[i*len(all)/most])
	}
	return out
}
