package live

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// places has the program end, and gives the places of both ranks' streams.
func places(p *asked) (place [2]int) {
	p.Helper()
	text := p.end()
	if _, err := fmt.Sscan(text, &place[0], &place[1]); err != nil || place[0] == 0 || place[1] == 0 {
		p.Fatalf("%q: %v", text, err)
	}
	return place
}

// A GPU's front end has two sides, and streams get them by turns with their first work: with DynamICCL a program's stream, which has none before its
// first call (nccltuner/fakegpu/test/steps.c), has the side that it has without, whether there is a daemon, and whoever runs its calls.
func TestProgramsKeepTheirPlaces(t *testing.T) {
	r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%")
	start := func(environ ...string) *asked {
		return runSteps(r, treeTableOf(t, 2), []string{fmt.Sprint(1 << 16), "1", "0"}, append(environ, "FAKEGPU_KERNEL_US=9")...)
	}
	plain := start("LD_PRELOAD="+filepath.Join(r.standIns(), "libnccl.so.2"), "NCCL_TUNER_PLUGIN=none", "NCCL_PROFILER_PLUGIN=none")
	plain.ask("16\n")
	want := places(plain)
	keeps := func(what string, wait func(), environ ...string) {
		p := start(environ...)
		wait()
		p.ask("16\n")
		place := places(p)
		t.Logf("%s: %v, plain NCCL %v", what, place, want)
		for rank := range place {
			if (place[rank]-want[rank])%2 != 0 {
				t.Errorf("%s: the stream of rank %d has place %d, which is on the other side than %d", what, rank, place[rank], want[rank])
			}
		}
	}
	none := func() {}
	keeps("no daemon, no kernels", none, "DYNAMICCL_NO_KERNELS=1")
	keeps("no daemon", none)
	r.start()
	known := func() { // so that what there is for it would be in force in its first call
		r.until("a communicator", func(s control.Status) bool { return len(s.Comms) == 1 })
		time.Sleep(300 * time.Millisecond)
	}
	keeps("no kernels", known, "DYNAMICCL_NO_KERNELS=1")
	keeps("kernels", known)
	learning := start()
	r.learns(func() { learning.ask("64\n") }, 16, func(b *control.Bucket) bool { return strings.HasPrefix(b.Choice, "lsa/") && len(b.Tried) > 3 })
	learning.end()
	r.until("the program's end", func(s control.Status) bool { return len(s.Comms) == 0 })
	keeps("what was learnt", known)
}
