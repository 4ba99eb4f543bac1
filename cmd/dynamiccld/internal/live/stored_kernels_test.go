package live

import (
	"strings"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// What is stored of our kernels is in force from a program's first call of a size on, about which NCCL is then never asked. Its calls are
// measured all the same, and it goes where it is no longer the best.
func TestStoredKernelsAreMeasured(t *testing.T) {
	r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%")
	r.start()
	ours := func(b *control.Bucket) bool { return strings.HasPrefix(b.Choice, "lsa/") }
	for _, run := range []struct {
		kernelUs string
		wanted   func(b *control.Bucket) bool
	}{
		{"9", func(b *control.Bucket) bool { return ours(b) && len(b.Tried) > 3 && b.SpeedUp > 1.3 }},
		{"9", func(b *control.Bucket) bool { return ours(b) && b.Calls > 20 && b.SpeedUp > 1.3 }},
		{"400", func(b *control.Bucket) bool { return !ours(b) && b.Calls > 20 }},
	} {
		p := startOneProcess(r, "group", 2, 1<<16, run.kernelUs, treeTableOf(t, 2))
		p.line("/\n") // the first calls of a communicator, of another size, come before there is a plan
		b := p.learn(16, run.wanted)
		t.Logf("%s us: %s, %.2f, %d calls", run.kernelUs, b.Choice, b.SpeedUp, b.Calls)
		p.end()
		r.until("the program's end", func(s control.Status) bool { return len(s.Comms) == 0 })
	}
}
