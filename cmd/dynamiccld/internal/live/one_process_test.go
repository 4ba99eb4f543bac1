package live

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// oneProcess is a program with several GPUs in one process (nccltuner/fakegpu/test/one_process.c) under the preload library.
type oneProcess struct{ *asked }

// lookedUp is the program that has NCCL by ctypes (testdata/looked_up.py).
const lookedUp = "looked-up"

// pastUs is the same with NCCL's own functions, as those of a second NCCL in a process are.
const pastUs = "past-us"

// startOneProcess: the stand-in for an H200 node has our kernels where they take that many microseconds, else none.
func startOneProcess(r *rig, how string, ranks, bytes int, kernelUs, table string, environ ...string) *oneProcess {
	r.Helper()
	fake := r.standIns()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	r.Cleanup(cancel)
	preload := filepath.Join(r.build.Lib, "libdynamiccl.so")
	sizes := []string{strconv.Itoa(ranks), strconv.Itoa(bytes), "40"}
	var cmd *exec.Cmd
	if how == lookedUp || how == pastUs {
		cmd = exec.CommandContext(ctx, "python3", append([]string{"testdata/looked_up.py"}, sizes...)...)
		preload += ":" + filepath.Join(fake, "libclock.so")
	} else {
		cmd = exec.CommandContext(ctx, filepath.Join(fake, "one_process"), append([]string{how}, sizes...)...)
		preload += ":" + filepath.Join(fake, "libnccl.so.2")
	}
	cmd.Env = r.programEnv(preload, table)
	if how == pastUs {
		cmd.Env = append(cmd.Env, "DYNAMICCL_NO_DLSYM=1")
	}
	if kernelUs == "" {
		cmd.Env = append(cmd.Env, "DYNAMICCL_NO_KERNELS=1")
	} else {
		cmd.Env = append(cmd.Env, "FAKEGPU_KERNEL_US="+kernelUs)
	}
	cmd.Env = append(cmd.Env, environ...)
	return &oneProcess{startAsked(r, cmd)}
}

// more makes calls and compares every element.
func (p *oneProcess) more() { p.line("\n") }

func (p *oneProcess) line(line string) {
	p.Helper()
	if wrong := strings.TrimSpace(p.ask(line)); wrong != "0" {
		p.Fatalf("%s elements are wrong", wrong)
	}
}

// learn makes calls until the choice of the bucket is one that is wanted.
func (p *oneProcess) learn(log2Bytes uint8, wanted func(b *control.Bucket) bool) *control.Bucket {
	p.Helper()
	return p.learns(p.more, log2Bytes, wanted)
}

// One thread with several GPUs makes each call for all of them within a group: it learns what as many processes learn, NCCL's
// choices and ours, and so do threads with a GPU each.
func TestOneProcessLearns(t *testing.T) {
	for _, c := range []struct {
		how      string
		ranks    int
		kernelUs string
		choice   string
	}{
		{"group", 2, "", "Ring/"},
		{"group", 4, "", "Ring/"},
		{"init-all", 2, "9", "lsa/"},
		{"group", 4, "9", "lsa/"},
		{"threads", 2, "", "Ring/"},
		{"threads", 2, "9", "lsa/"},
		{lookedUp, 2, "9", "lsa/"},
	} {
		t.Run(strings.Join([]string{c.how, strconv.Itoa(c.ranks), c.choice}, "-"), func(t *testing.T) {
			r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%")
			r.start()
			p := startOneProcess(r, c.how, c.ranks, 1<<16, c.kernelUs, treeTableOf(t, c.ranks))
			b := p.learn(16, func(b *control.Bucket) bool {
				return strings.HasPrefix(b.Choice, c.choice) && len(b.Tried) > 3 && b.SpeedUp > 1.3
			})
			p.end()
			if b.Ranks != c.ranks {
				t.Errorf("%d ranks, want %d", b.Ranks, c.ranks)
			}
			if s := r.status(); s.Unjoined != 0 || s.Core.Disagreed != 0 || s.Core.Incoherent != 0 || s.Samples < uint64(c.ranks)*b.Calls {
				t.Errorf("%d samples for %d calls of %d ranks, %+v", s.Samples, b.Calls, c.ranks, s)
			}
		})
	}
}

// Calls that go past the preload library gain next to nothing: the process says so, once for its communicators.
func TestCallsPastTheLibraryAreSaid(t *testing.T) {
	for how, lines := range map[string]int{lookedUp: 0, pastUs: 1} {
		r := newRig(t)
		r.start()
		p := startOneProcess(r, how, 2, 1<<16, "", treeTableOf(t, 2))
		p.more()
		p.end()
		if said := strings.Count(p.said.String(), "dynamiccl: a communicator was made past libdynamiccl.so, by another NCCL of this process"); said != lines || strings.Count(p.said.String(), "\n") != lines {
			t.Errorf("%s: said %d times, want %d:\n%s", how, said, lines, p.said.String())
		}
	}
}

// Where a group holds several calls of a communicator, calls that are not alike, or two of which nobody can say whose they are, it is
// left alone: no sample, no trial.
func TestOneProcessLeftAlone(t *testing.T) {
	for _, how := range []string{"twice", "unlike", "stream", "ranks"} {
		t.Run(how, func(t *testing.T) {
			r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%")
			r.start()
			p := startOneProcess(r, how, 2, 1<<16, "9", treeTableOf(t, 2))
			for began := time.Now(); time.Since(began) < 2*time.Second; {
				p.more()
			}
			buckets, err := control.NewClient(r.daemon.Dir).Buckets(t.Context())
			p.end()
			if err != nil || len(buckets) == 0 {
				t.Errorf("%v, %+v", err, buckets)
			}
			for _, b := range buckets {
				if b.Calls != 0 || b.Choice != "default" || len(b.Tried) != 0 {
					t.Errorf("%+v", b)
				}
			}
			if s := r.status(); s.Samples != 0 {
				t.Errorf("%d samples", s.Samples)
			}
		})
	}
}

// Our kernels have fewer CTAs the more communicators the process has, from the moment these come on.
func TestMoreCommunicatorsFewerCTAs(t *testing.T) {
	r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%")
	r.start()
	p := startOneProcess(r, "group", 2, 1<<16, "9", treeTableOf(t, 2)) // larger kernels keep the launching thread off a CPU of few
	many := func(b *control.Bucket, most int) bool {
		return strings.HasPrefix(b.Choice, "lsa/") && slices.ContainsFunc(b.Tried, func(a control.Tried) bool { return ctasOf(t, a.Action) > most })
	}
	if b := p.learn(16, func(b *control.Bucket) bool { return many(b, 16) }); b.MostCTAs != 0 {
		t.Errorf("one communicator: %+v", b)
	}
	for i := range 4 {
		p.line("+\n")
		r.until("a communicator more", func(s control.Status) bool { return len(s.Comms) == i+2 })
	}
	b := p.learn(16, func(b *control.Bucket) bool {
		return b.MostCTAs == 16 && b.Beside == 5 && strings.HasPrefix(b.Choice, "lsa/") && len(b.Tried) > 3
	})
	if many(b, 16) || ctasOf(t, b.Choice) > 16 {
		t.Errorf("beside four communicators: %+v", b)
	}
	p.end()
	if s := r.status(); s.Core.Disagreed != 0 {
		t.Errorf("%+v", s.Core)
	}
}

// ctasOf is 0 of a choice that is not ours.
func ctasOf(t *testing.T, choice string) int {
	t.Helper()
	parts := strings.Split(choice, "/")
	if parts[0] != "lsa" || len(parts) < 3 {
		return 0
	}
	n, err := strconv.Atoi(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
