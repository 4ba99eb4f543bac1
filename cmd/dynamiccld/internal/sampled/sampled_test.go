package sampled

import (
	"testing"

	"dynamiccl/nccltuner"
	"dynamiccl/tuner"
)

// What says something of a call that was to be timed is an event; of one whose host took too long that is no more than this.
func TestEvent(t *testing.T) {
	for _, c := range []struct {
		name        string
		sample      nccltuner.Sample
		event, slow bool
	}{
		{"kernel times", nccltuner.Sample{SignalNs: 5}, true, false},
		{"event times", nccltuner.Sample{SignalNs: 5, EventTimed: true}, true, false},
		{"too slow", nccltuner.Sample{Untimed: true, EventTimed: true}, true, true},
		{"not to be timed", nccltuner.Sample{Untimed: true}, false, false},
		{"captured", nccltuner.Sample{Untimed: true, Captured: true}, false, false},
		{"captured and too slow", nccltuner.Sample{Untimed: true, EventTimed: true, Captured: true}, false, false},
		{"without a call", nccltuner.Sample{Untimed: true, EventTimed: true, Unjoined: true}, false, false},
		{"a replay", nccltuner.Sample{SignalNs: 5, Replayed: true}, false, false},
		{"a put", nccltuner.Sample{SignalNs: 5, Trip: true}, false, false},
	} {
		e := tuner.Sample{Slow: !c.slow}
		if ok := Event(&c.sample, &e); ok != c.event || ok && (e.Slow != c.slow || e.SignalNs != c.sample.SignalNs || e.EventTimed != c.sample.EventTimed) {
			t.Errorf("%s: %v, %+v", c.name, ok, e)
		}
	}
}
