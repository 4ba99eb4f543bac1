package paired

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/state"
)

// Heard is what an arm's daemon heard of its detectors in a phase.
type Heard struct {
	Alarms   uint64            `json:"alarms"`
	Findings map[string]uint64 `json:"findings"` // by diagnosis
	// Said are both by kind, collective and size, in the order in which they came first, to some milliseconds. Daemons keep the newest 256 of either: where
	// there were more the counts above are larger than the sums of these, and what came first may be missing.
	Said  []Said `json:"said"`
	Error string `json:"error,omitempty"` // why nothing is known
}

// Said is one kind of alarm or finding of one collective and size.
type Said struct {
	Kind       string  `json:"kind"` // alarm-up, alarm-down, or a diagnosis
	Collective string  `json:"collective"`
	MinBytes   uint64  `json:"min_bytes"`
	Count      int     `json:"count"`
	FirstS     float64 `json:"first_s"` // after the phase began
	Text       string  `json:"text,omitempty"`
}

// counted is what a daemon had counted when a phase began; an error is that of the question.
type counted struct {
	control.Status
	err error
}

// start is the beginning of a phase, and what the daemons had counted by then, by arm.
type start struct {
	at      time.Time
	counted []*counted
}

// start is asked for while no rank calls.
func (r *runner) start(ctx context.Context) start {
	var s start
	for _, a := range r.arms {
		s.counted = append(s.counted, a.count(ctx))
	}
	s.at = time.Now()
	return s
}

// count asks for it; nil where there is no daemon.
func (a *arm) count(ctx context.Context) *counted {
	if a.client == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	c := &counted{}
	c.Status, c.err = a.client.Status(ctx)
	return c
}

// heard asks what came since before, when the phase began. The end of the phase is no place to fail, as for choices.
func (a *arm) heard(ctx context.Context, before *counted, began time.Time) *Heard {
	now := a.count(ctx)
	if before == nil || now == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	asked := time.Since(began).Seconds()
	findings, err := a.client.Findings(ctx)
	asked2 := time.Since(began).Seconds()
	alarms, err2 := a.client.Alarms(ctx)
	if err := errors.Join(before.err, now.err, err, err2); err != nil {
		return &Heard{Findings: map[string]uint64{}, Said: []Said{}, Error: strings.TrimSpace(err.Error())}
	}
	h := &Heard{Alarms: now.Core.Alarms - before.Core.Alarms, Findings: map[string]uint64{}, Said: said(alarms, asked2, findings, asked)}
	for kind, n := range now.FindingCounts {
		if n -= before.FindingCounts[kind]; n > 0 {
			h.Findings[kind] = n
		}
	}
	return h
}

// said gathers what came in the phase, so many seconds of which were over when it was asked for.
func said(alarms []control.Alarm, alarmsAsked float64, findings []control.Finding, findingsAsked float64) []Said {
	all := []Said{}
	add := func(one Said) {
		i := slices.IndexFunc(all, func(s Said) bool {
			return s.Kind == one.Kind && s.Collective == one.Collective && s.MinBytes == one.MinBytes
		})
		switch {
		case one.FirstS < 0: // before the phase
		case i < 0:
			one.Count, one.FirstS = 1, digits(one.FirstS, 4)
			all = append(all, one)
		default:
			all[i].Count++
		}
	}
	for _, a := range alarms { // oldest first, as findings are
		kind := "alarm-down"
		if a.Up {
			kind = "alarm-up"
		}
		add(Said{Kind: kind, Collective: a.Collective, MinBytes: a.MinBytes, FirstS: alarmsAsked - a.AgoS})
	}
	for _, f := range findings {
		add(Said{Kind: f.Diagnosis, Collective: f.Collective, MinBytes: f.MinBytes, FirstS: findingsAsked - f.AgoS, Text: f.Text})
	}
	slices.SortStableFunc(all, func(a, b Said) int { return cmp.Compare(a.FirstS, b.FirstS) })
	return all
}

// String is a line for people: each kind with what came first of it.
func (h *Heard) String() string {
	if h.Error != "" {
		return "its detector: not known: " + h.Error
	}
	var kinds []string
	for _, s := range h.Said {
		if !slices.Contains(kinds, s.Kind) {
			kinds = append(kinds, s.Kind)
		}
	}
	line := fmt.Sprintf("its detector: %d alarms", h.Alarms)
	for _, kind := range kinds {
		first, n := Said{}, 0
		for _, s := range slices.Backward(h.Said) {
			if s.Kind == kind {
				first, n = s, n+s.Count
			}
		}
		line += fmt.Sprintf("; %d %s, first after %.1f s (%s %s)", n, kind, first.FirstS, first.Collective, state.FormatBytes(first.MinBytes))
	}
	return line
}
