package forced

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/workers"
)

// Effort says how long one measurement takes.
type Effort struct {
	Calls      int     // of one replay at most
	ReplayUs   float64 // of one replay about, where that means fewer calls
	WarmUs     float64 // that does not count
	MinReplays int
	Replays    int           // at most; 0: 50
	Budget     time.Duration // of replays beyond MinReplays
	Memory     string        // workers.NCCLMemory; "": the ranks' buffers
}

// Thorough is how the recorded tables were made (tuner/tunersim/testdata/measurements/PROVENANCE.md): replays of 20 calls,
// fewer where these would take longer than 10 ms, after 2 ms that do not count.
var Thorough = Effort{Calls: replayCalls, ReplayUs: 10_000, WarmUs: warmUs, MinReplays: minReplays}

const (
	replayCalls = 20
	warmUs      = 2000
	mostReplays = 50
	minReplays  = 3
)

// Single is so many replays of one call each, after as much warming.
func Single(calls int) Effort {
	return Effort{Calls: 1, ReplayUs: 1, WarmUs: warmUs, MinReplays: calls, Replays: calls}
}

// Clocks are warm after 0.7 s of work (H200; cold ones add 30 to 60%).
const (
	warmFor   = 700 * time.Millisecond
	warmBytes = 16 << 20
	warmAsk   = 100 * time.Millisecond
	warmMost  = 50 // asks, where time does not pass as it should
)

// Measure measures the choice in force, a call of which takes about callUs. It gives what every rank measured and the
// calls of a replay.
func (s *Session) Measure(ctx context.Context, collective string, bytes uint64, callUs float64, e Effort) ([]workers.Measured, int, error) {
	calls := min(e.Calls, max(1, int(e.ReplayUs/max(callUs, 1))))
	a := workers.Ask{Collective: called(collective), Bytes: bytes, Mode: s.o.Calls, Memory: e.Memory, Calls: calls, WarmUs: e.WarmUs,
		Replays: cmp.Or(e.Replays, mostReplays), MinReplays: e.MinReplays, BudgetUs: float64(e.Budget.Microseconds())}
	s.idle()
	got, err := s.group.Measure(ctx, s.o.Timeout, a)
	if err != nil {
		return nil, 0, outcomeOf(ctx, err)
	}
	for rank, m := range got {
		if m.Wrong > 0 {
			return nil, 0, NewFault(Wrong, "rank %d: %d elements of the result are wrong", rank, m.Wrong)
		}
		if len(m.Us) == 0 || slices.Min(m.Us) <= 0 { // nothing costs nothing: it would be the best choice, and no reader takes such a row
			return nil, 0, NewFault(Failed, "rank %d measured no time", rank)
		}
	}
	return got, calls, s.look()
}

// Warm makes the GPUs work until their clocks are up.
func (s *Session) Warm(ctx context.Context) error {
	a := workers.Ask{Collective: "AllReduce", Bytes: min(warmBytes, max(leastBytes, s.o.MaxBytes)), Mode: s.o.Calls, Calls: replayCalls, WarmUs: warmUs,
		Replays: mostReplays, MinReplays: minReplays, BudgetUs: float64(warmAsk.Microseconds())}
	began := time.Now()
	for n := 0; n < warmMost && time.Since(began) < warmFor; n++ {
		s.Forget()
		s.idle()
		got, err := s.group.Measure(ctx, s.o.Timeout, a)
		if err != nil {
			return fmt.Errorf("warming the clocks with AllReduce: %w", err)
		}
		for rank, m := range got {
			if m.Wrong > 0 {
				return fmt.Errorf("rank %d: %d elements of NCCL's own AllReduce are wrong; this machine cannot be measured: %w", rank, m.Wrong, ErrSetup)
			}
		}
	}
	return s.look()
}
