package agents

import (
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// A chart that noise had taken a part of the way has a change begin where that did. The calls say better: those before the change are
// no evidence of it, whichever way costs went, and of a change all along it all is.
func TestOnsetIsWhereCallsChange(t *testing.T) {
	for _, c := range []struct {
		name             string
		before, after    float64 // log units from what is expected
		up               bool
		since, want, tol uint64
	}{
		{"a jump behind a drift", 0.03, 1.2, true, 1, 11, 0},
		{"a fall behind a drift", -0.03, -0.5, false, 1, 11, 0},
		{"a small step", 0, 0.2, true, 1, 11, 2},
		{"all of it", 0.2, 0.2, true, 1, 1, 2},
		{"not before the chart says so", 0.2, 0.2, true, 6, 6, 0},
	} {
		d := NewDiagnoser()
		key := keyOf(state.Observation{Action: actions.Default, Bytes: 4096})
		for size := range 2 {
			e := &evidence{detector: NewPutDetector(mustDesign(t)), frozen: []reference{{key: key, signal: 9, levels: [2]level{{variance: 0.05 * 0.05}}}}}
			for i := range 10 {
				call := uint64(2*i + size + 1)
				off := c.before
				if call > 10 {
					off = c.after
				}
				e.recent[i] = sighting{call: call, key: key, signal: 9 + off + 0.02*float64(i%3-1)}
				e.seen++
			}
			d.order = append(d.order, e)
		}
		if got := d.onset(c.since, c.up); got+c.tol < c.want || got > c.want+c.tol {
			t.Errorf("%s: since call %d, want %d", c.name, got, c.want)
		}
	}
}
