package tuner

import (
	"testing"

	"dynamiccl/state"
)

// Calls that a GPU waits for are charged where there are hardly any others, and where they are long.
func TestCallsThatAGPUWaitsFor(t *testing.T) {
	for _, c := range []struct {
		what    string
		every   int // the so-manieth call is enqueued ahead; 0: none
		ns      state.Ns
		charged float64 // share of those waited for
	}{
		{"none is enqueued ahead", 0, 6_000, 1},
		{"one in eight is", 8, 6_000, 1},
		{"half are", 2, 6_000, 0},
		{"half of long ones are", 2, shortNs + 1, 1},
	} {
		b, waited, charged := &bucket{}, 0.0, 0.0
		for i := range 2000 {
			o := state.Observation{SignalNs: c.ns, Idle: c.every == 0 || i%c.every != 0}
			out := b.waits(&o)
			if out && !o.Idle {
				t.Fatalf("%s: call %d was enqueued ahead, and is not charged", c.what, i)
			}
			if i >= idleCalls && o.Idle {
				waited++
				if !out {
					charged++
				}
			}
		}
		if charged/waited != c.charged {
			t.Errorf("%s: %.2f of those waited for are charged, want %.2f", c.what, charged/waited, c.charged)
		}
	}
}
