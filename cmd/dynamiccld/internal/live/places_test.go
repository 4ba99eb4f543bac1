package live

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// placed is a program of two rank processes whose streams have no work before their first call (nccltuner/fakegpu/test/steps.c).
type placed struct {
	*asked
	environ string
}

func startPlaced(r *rig, preload, environ string) *placed {
	r.Helper()
	fake := r.standIns()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	r.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(fake, "steps"), fmt.Sprint(1<<16), "1", "0")
	cmd.Env = append(r.programEnv(preload+filepath.Join(fake, "libnccl.so.2"), treeTableOf(r, 2)), "PLACES=1", "FAKEGPU_KERNEL_US=9")
	cmd.Env = append(cmd.Env, strings.Fields(environ)...)
	return &placed{startAsked(r, cmd), environ}
}

// ends gives the places of both ranks' streams.
func (p *placed) ends() (place [2]int) {
	p.Helper()
	if err := p.in.Close(); err != nil {
		p.Error(err)
	}
	text, err := io.ReadAll(p.out)
	if err != nil {
		p.Error(err)
	}
	if err := p.cmd.Wait(); err != nil {
		p.Error(err)
	}
	if _, err := fmt.Sscan(string(text), &place[0], &place[1]); err != nil || place[0] == 0 || place[1] == 0 {
		p.Fatalf("%s: %q: %v", p.environ, text, err)
	}
	return place
}

// A GPU's front end has two sides, and streams get them by turns with their first work: with DynamICCL a program's stream has the side that it has
// without, whether there is a daemon, and whoever runs its calls.
func TestProgramsKeepTheirPlaces(t *testing.T) {
	r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%")
	preload := filepath.Join(r.build.Lib, "libdynamiccl.so") + ":"
	const plain, none, noKernels = "NCCL_TUNER_PLUGIN=none NCCL_PROFILER_PLUGIN=none", "", "DYNAMICCL_NO_KERNELS=1"
	run := func(what, preload, environ string, want [2]int, before ...func()) [2]int {
		p := startPlaced(r, preload, environ)
		for _, wait := range before {
			wait()
		}
		p.ask("16\n")
		place := p.ends()
		t.Logf("%s: %v", what, place)
		for rank := range place {
			if want[rank] > 0 && (place[rank]-want[rank])%2 != 0 {
				t.Errorf("%s: the stream of rank %d has place %d, which is on the other side than %d", what, rank, place[rank], want[rank])
			}
		}
		return place
	}
	want := run("plain NCCL", "", plain, [2]int{})
	run("no daemon, no kernels", preload, noKernels, want)
	run("no daemon", preload, none, want)
	r.start()
	known := func() { // so that what there is for it would be in force in its first call
		r.until("a communicator", func(s control.Status) bool { return len(s.Comms) == 1 })
		time.Sleep(300 * time.Millisecond)
	}
	run("no kernels", preload, noKernels, want, known)
	run("kernels", preload, none, want, known)
	learning := startPlaced(r, preload, none)
	r.learns(func() { learning.ask("64\n") }, 16, func(b *control.Bucket) bool { return strings.HasPrefix(b.Choice, "lsa/") && len(b.Tried) > 3 })
	learning.ends()
	r.until("the program's end", func(s control.Status) bool { return len(s.Comms) == 0 })
	run("what was learnt", preload, none, want, known)
}
