package sweep

import (
	"context"
	"fmt"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/workers"
)

// One measurement, as the recorded tables were made (tuner/tunersim/testdata/measurements/PROVENANCE.md): replays of 20
// calls, fewer where these would take longer than 10 ms, after 2 ms that do not count.
const (
	replayCalls = 20
	replayUs    = 10_000
	warmUs      = 2000
	mostReplays = 50
	minReplays  = 3
)

// Clocks are warm after 0.7 s of work (H200; cold ones add 30 to 60%).
const (
	warmFor   = 700 * time.Millisecond
	warmBytes = 16 << 20
	warmAsk   = 100 * time.Millisecond
	warmMost  = 50 // asks, where time does not pass as it should
)

// measure measures the choice in force.
func (s *session) measure(ctx context.Context, collective string, bytes uint64, f forced) ([]workers.Measured, int, error) {
	calls := min(replayCalls, max(1, int(replayUs/max(f.callUs, 1))))
	a := workers.Ask{Collective: collective, Bytes: bytes, Mode: s.o.Calls, Calls: calls, WarmUs: warmUs,
		Replays: mostReplays, MinReplays: minReplays, BudgetUs: float64(s.o.Budget.Microseconds())}
	s.idle()
	got, err := s.group.Measure(ctx, s.o.Timeout, a)
	if err != nil {
		return nil, 0, outcomeOf(ctx, err)
	}
	for rank, m := range got {
		if m.Wrong > 0 {
			return nil, 0, fault(OutcomeWrong, "rank %d: %d elements of the result are wrong", rank, m.Wrong)
		}
		if len(m.Us) == 0 {
			return nil, 0, fault(OutcomeFailed, "rank %d measured nothing", rank)
		}
	}
	return got, calls, s.look()
}

// warm makes the GPUs work until their clocks are up.
func (s *session) warm(ctx context.Context) error {
	a := workers.Ask{Collective: "AllReduce", Bytes: min(warmBytes, s.o.largest()), Mode: s.o.Calls, Calls: replayCalls, WarmUs: warmUs,
		Replays: mostReplays, MinReplays: minReplays, BudgetUs: float64(warmAsk.Microseconds())}
	began := time.Now()
	for n := 0; n < warmMost && time.Since(began) < warmFor; n++ {
		s.forget()
		s.idle()
		got, err := s.group.Measure(ctx, s.o.Timeout, a)
		if err != nil {
			return fmt.Errorf("warming the clocks with AllReduce: %w", err)
		}
		for rank, m := range got {
			if m.Wrong > 0 {
				return fmt.Errorf("rank %d: %d elements of NCCL's own AllReduce are wrong; this machine cannot be measured: %w", rank, m.Wrong, errSetup)
			}
		}
	}
	return s.look()
}

// point measures one choice and says what is known of it.
func (s *session) point(ctx context.Context, collective string, bytes uint64, a actions.Action, p *Point) error {
	f, err := s.force(ctx, collective, bytes, a)
	if err != nil {
		return err
	}
	switch {
	case f.ran != actions.Default:
		p.Ran = f.ran.String()
	case f.device:
		p.Ran = "device kernel"
	}
	if s.o.Samples != "" {
		s.forget()
		if err := s.want(wantTimes); err != nil {
			return err
		}
	}
	got, calls, err := s.measure(ctx, collective, bytes, f)
	if err != nil {
		return err
	}
	ranks := make([][]float64, len(got))
	for i, m := range got {
		ranks[i] = m.Us
	}
	p.MedianUs, p.IQRUs, p.RankUs = slowest(ranks)
	p.Replays, p.Calls, p.Grid = len(got[0].Us), calls, got[0].Grid
	if a != actions.Default && a.Channels == 0 && f.ran.Channels == 0 {
		return fault(OutcomeUnseen, "the number of channels that ran is not known, and tables want one")
	}
	if s.o.Samples != "" {
		return s.writeSamples(ctx, collective, bytes, a, p)
	}
	return nil
}
