package render

import (
	"fmt"
	"io"
	"strings"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Why explains the choice of one bucket, and what CUDA graphs hold of it.
func Why(w io.Writer, b control.Bucket, graphs []control.Replay, now time.Time) error {
	sizes := state.FormatBytes(b.MinBytes) + " and more"
	if b.MaxBytes != 0 {
		sizes = fmt.Sprintf("%s to %s", state.FormatBytes(b.MinBytes), state.FormatBytes(b.MaxBytes+1))
	}
	fmt.Fprintf(w, "%s of %s on %s\n", b.Collective, sizes, owner(b))
	if b.Choice == "" {
		return writeGraphs(w, graphs, now)
	}
	t := columns(w)
	fmt.Fprintf(t, "  choice\t%s\n", choice(b, now))
	fmt.Fprintf(t, "  advantage\t%s\n", advantage(b))
	if b.Numerics != "" {
		fmt.Fprintf(t, "  numerics\t%s\n", numerics(b))
	}
	if b.Expected > 0 {
		fmt.Fprintf(t, "  policy\t%s\n", expected(b))
	}
	if b.Reward != "" {
		fmt.Fprintf(t, "  reward\t%s: %s\n", b.Reward, rewardMeans)
	}
	if b.Steps != nil && !b.Steps.Vetoed { // else the note says so
		steps := tuner.AuditView(*b.Steps)
		fmt.Fprintf(t, "  steps\t%s\n", &steps)
	}
	if b.MostCTAs > 0 {
		why := "the program lets NCCL's kernels have no more (NCCL_MAX_CTAS, NCCL_MAX_NCHANNELS, ncclConfig_t.maxCTAs)"
		switch {
		case b.Computes:
			why = "the program computes between these calls, or beside them, and has what they leave (--step-guard)"
		case b.Beside > 0:
			why = units.Count(b.Beside, "kernel") + " may wait beside it"
		}
		fmt.Fprintf(t, "  places\tat most %d CTAs: %s\n", b.MostCTAs, why)
	}
	if len(b.Refused) > 0 {
		fmt.Fprintf(t, "  never tried\t%s: hung its ranks, or gave wrong elements, when calibrate measured it; another calibrate tries it again\n", strings.Join(b.Refused, ", "))
	}
	if len(b.Silent) > 0 {
		fmt.Fprintf(t, "  hardly tried\t%s: no times came of their trials, or of too few calls\n", strings.Join(b.Silent, ", "))
	}
	if b.Note != "" {
		fmt.Fprintf(t, "  note\t%s\n", b.Note)
	}
	if b.Comm != "" || b.DiagnosedAt != nil {
		fmt.Fprintf(t, "  diagnosis\t%s\n", diagnosis(b, now))
	}
	if b.Comm != "" {
		fmt.Fprintf(t, "  detector\tcounter at %.0f%%, signal at %.0f%% of the alarm threshold\n", 100*b.Counter, 100*b.Signal)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := writeTried(w, b); err != nil {
		return err
	}
	return writeGraphs(w, graphs, now)
}

// rewardMeans says what times are where they are not the calls' own.
const rewardMeans = "times are what a call adds to the program's step, against its usual choice at the same place, not what it takes"

func choice(b control.Bucket, now time.Time) string {
	s := b.Choice
	if s == "default" {
		s = "default (NCCL's own choice)"
	}
	if b.DeviceLL {
		s += " (NCCL's device kernel)"
	}
	if b.Since != nil {
		s += fmt.Sprintf(", since %s (%s)", instant(*b.Since), units.Ago(*b.Since, now))
	}
	if b.Exploring {
		s += "; still trying others"
	}
	return s
}

// numerics is the class of the choice. What its sums are is said where there are any.
func numerics(b control.Bucket) string {
	class := actions.Numerics(b.Numerics)
	s := fmt.Sprintf("%s: %s", class, class.Means())
	if class != actions.NoSums {
		s += "; integers, min and max are exact in any class"
	}
	return s
}

func advantage(b control.Bucket) string {
	switch {
	case b.Steps != nil && b.Steps.Vetoed:
		return "none for the program's steps, whatever calls gain"
	case b.Choice == "default" && len(b.Tried) < 2:
		return "none: nothing else has been measured yet"
	case b.Choice == "default":
		return "none: nothing tried so far is measured better"
	case b.SpeedUpLow == b.SpeedUpHigh && b.SpeedUp == 1:
		return "not measured yet"
	}
	return fmt.Sprintf("%.2fx NCCL's default, 95%% interval %.2fx to %.2fx, %d calls so far", b.SpeedUp, b.SpeedUpLow, b.SpeedUpHigh, b.Calls)
}

// expected compares what the learner knew beforehand with what came.
func expected(b control.Bucket) string {
	s := fmt.Sprintf("expected %s than NCCL's default (sd %.0f%%) from what it learned elsewhere; ", faster(b.Expected), 100*b.ExpectedSD)
	for _, a := range b.Tried {
		if a.Action == b.Choice && b.SpeedUp != 1 {
			return s + fmt.Sprintf("measured %s over %d calls", faster(b.SpeedUp), a.Calls)
		}
	}
	return s + "not measured yet"
}

func faster(speedUp float64) string {
	if speedUp < 1 {
		return fmt.Sprintf("%.0f%% slower", 100*(1/speedUp-1))
	}
	return fmt.Sprintf("%.0f%% faster", 100*(speedUp-1))
}

func diagnosis(b control.Bucket, now time.Time) string {
	if b.Diagnosis == "none" || b.DiagnosedAt == nil {
		return "none: costs have not changed since " + measured(b, now)
	}
	s := fmt.Sprintf("%s at %s (%s)", b.Diagnosis, instant(*b.DiagnosedAt), units.Ago(*b.DiagnosedAt, now))
	if b.DiagnosedBefore && b.MeasuredAt != nil {
		s += ", as the store has it; costs have not changed since " + measured(b, now)
	}
	return s
}

// measured is since when calls of a live daemon's bucket are measured.
func measured(b control.Bucket, now time.Time) string {
	if b.MeasuredAt == nil {
		return "they were learned"
	}
	return fmt.Sprintf("%s (%s)", instant(*b.MeasuredAt), units.Ago(*b.MeasuredAt, now))
}

func writeTried(w io.Writer, b control.Bucket) error {
	if len(b.Tried) == 0 {
		_, err := fmt.Fprintf(w, "  tried      nothing yet\n")
		return err
	}
	var base float64
	for _, a := range b.Tried {
		if a.Action == "default" {
			base = a.MeanNs
		}
	}
	t := columns(w)
	sums := b.Numerics != "" && b.Numerics != string(actions.NoSums)
	fmt.Fprintf(t, "  tried\tcalls\tmean\tspread\tagainst default%s\n", ofSums(sums, "numerics"))
	for _, a := range b.Tried {
		against := "-"
		if base > 0 && a.MeanNs > 0 {
			against = fmt.Sprintf("%.2fx", base/a.MeanNs)
		}
		spread := "-" // one call has none
		if a.Calls > 1 {
			spread = fmt.Sprintf("%.1f%%", 100*a.Spread)
		}
		fmt.Fprintf(t, "  %s\t%d\t%s\t%s\t%s%s\n", a.Action, a.Calls, units.Duration(a.MeanNs), spread, against, ofSums(sums, a.Numerics))
	}
	return t.Flush()
}

// ofSums is a column more where choices differ in it.
func ofSums(sums bool, text string) string {
	if !sums {
		return ""
	}
	return "\t" + text
}
