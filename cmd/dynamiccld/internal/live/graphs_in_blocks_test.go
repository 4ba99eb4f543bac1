package live

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/internal/testbuild"
	"dynamiccl/tuner"
)

// blocksDefaultUs is what NCCL's default takes here; whatever is learnt takes less.
const blocksDefaultUs = 400

// stepping is a program of two rank processes that makes steps (nccltuner/fakegpu/test/steps.c).
type stepping struct {
	*asked
	deadline     time.Time
	made         uint64
	learntUs     float64      // what the last call took that ran something else than NCCL's default
	before, core tuner.Totals // when it began, and as last seen
}

func runSteps(r *rig, table string, args []string, environ ...string) *asked {
	r.Helper()
	fake := r.standIns()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	r.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, filepath.Join(fake, "steps"), args...)
	cmd.Env = append(r.programEnv(filepath.Join(r.build.Lib, "libdynamiccl.so")+":"+filepath.Join(fake, "libnccl.so.2"), table), environ...)
	return startAsked(r, cmd)
}

// startSteps: a step is a call of so many bytes, and takes so many microseconds more with something else than NCCL's default.
func startSteps(r *rig, bytes int, plugin, moreUs string, environ ...string) *stepping {
	r.Helper()
	environ = append([]string{"NCCL_TUNER_PLUGIN=" + plugin, "NCCL_PROFILER_PLUGIN=" + plugin}, environ...)
	core := r.status().Core
	return &stepping{asked: runSteps(r, treeTableTimes(r, 2, blocksDefaultUs/40), []string{fmt.Sprint(bytes), fmt.Sprint(blocksDefaultUs), moreUs}, environ...), deadline: time.Now().Add(2 * time.Minute), before: core, core: core}
}

func (p *stepping) say(line int, answer ...any) {
	p.Helper()
	text := p.ask(fmt.Sprintln(line))
	if _, err := fmt.Sscan(text, answer...); err != nil {
		p.Fatalf("%q: %v", text, err)
	}
}

// steps makes them until another plan is in force, and so many at most. It says whether the last one ran NCCL's default. Where the daemon has no
// CPU it waits a while: an audit that hears of thousands of calls at once ends without a word.
func (p *stepping) steps(most int) (byDefault bool) {
	p.Helper()
	const ahead = 1024
	var made uint64
	var us float64
	p.say(most, &made, &us)
	p.made += made
	p.core = p.status().Core
	for tries := 0; tries < 50 && p.made > p.core.Groups-p.before.Groups+ahead; tries++ {
		time.Sleep(time.Millisecond)
		p.core = p.status().Core
	}
	if time.Now().After(p.deadline) {
		p.Fatalf("%+v", p.core)
	}
	if us < blocksDefaultUs {
		p.learntUs = us
	}
	return us >= blocksDefaultUs
}

// captures gives what a call takes that is captured, and whether those around it run NCCL's default. These are less than an epoch apart, so plans
// have changed once at most: where both are alike so is the plan of the one between them.
func (p *stepping) captures() (us float64, byDefault, alike bool) {
	p.Helper()
	var before, after float64
	p.say(0, &before, &us, &after)
	p.made += 2
	p.core = p.status().Core
	return us, before >= blocksDefaultUs, before == after
}

// awaitVerdict makes steps until NCCL's default is what is captured: not for long, for a later audit has blocks of it, too.
func (p *stepping) awaitVerdict() {
	p.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		us, _, _ := p.captures()
		if us >= blocksDefaultUs {
			return
		}
		if p.steps(16); time.Now().After(deadline) {
			p.Fatalf("under a veto what is captured takes %.3f us", us)
		}
	}
}

// graphsInBlocks plays a program whose steps are longer with what was learnt before, though calls take less: the step guard finds that, and looks
// again later. It says what is wrong with what is captured in blocks of both audits.
func graphsInBlocks(t *testing.T, plugin, choice string, environ ...string) (wrong []string) {
	t.Helper()
	const few, many = 32, 512
	r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%", "--sample-every", "1", "--tick", "1ms")
	r.start()
	learning := startSteps(r, 4096, plugin, "0", environ...)
	r.learns(func() { learning.steps(64) }, 12, func(b *control.Bucket) bool { return strings.HasPrefix(b.Choice, choice) && b.SpeedUp > 1.3 })
	learning.end()
	r.until("the program's end", func(s control.Status) bool { return len(s.Comms) == 0 })

	p := startSteps(r, 4096, plugin, "1000", append(environ, "DYNAMICCL_NO_EXPLORE=true")...) // nothing but blocks puts another choice in force
	for p.steps(16) {
	}
	seen := map[string]int{}
	wants := func(where string, us, want float64) {
		if seen[where]++; us != want {
			wrong = append(wrong, fmt.Sprintf("%s: %.3f us, want %.3f", where, us, want))
		}
	}
	for p.core.Vetoes == p.before.Vetoes && len(wrong) == 0 {
		if !p.steps(few) {
			continue
		}
		if us, byDefault, alike := p.captures(); byDefault && alike && p.core.Vetoes == p.before.Vetoes { // else the verdict may have come before
			wants("a block of NCCL's default", us, p.learntUs)
		}
	}
	if len(wrong) == 0 {
		p.awaitVerdict()
		var us float64
		p.say(-1, &us) // a new size, for which the next audit comes sooner
	}
	for p.core.Audits < p.before.Audits+2 && len(wrong) == 0 {
		if p.steps(many) {
			continue
		}
		if us, byDefault, alike := p.captures(); !byDefault && alike {
			wants("a block of what is vetoed", us, blocksDefaultUs)
		}
	}
	p.end()
	t.Logf("%d steps, captured: %v", p.made, seen)
	if len(wrong) == 0 && len(seen) < 2 || p.core.Disagreed > 0 {
		t.Errorf("captured: %v; %+v", seen, p.core)
	}
	return wrong
}

// What a program captures in a block of NCCL's default is what was learnt, and under a veto, in blocks of what is vetoed, too, it is NCCL's default.
func TestGraphsInBlocks(t *testing.T) {
	for _, c := range []struct{ choice, environ string }{{"Ring/", "DYNAMICCL_NO_KERNELS=1"}, {"lsa/", "FAKEGPU_KERNEL_US=90"}} {
		t.Run(c.choice, func(t *testing.T) {
			for _, wrong := range graphsInBlocks(t, built(t).Tuner(), c.choice, c.environ) {
				t.Error(wrong)
			}
		})
	}
}

// A plugin that takes for graphs what a block's plan says of calls is found.
func TestGraphsInBlocksFindPlantedMistakes(t *testing.T) {
	plugin := testbuild.MistakenPlugin(t, t.TempDir(), filepath.Join(checkout, "nccltuner", "plugin"), filepath.Join(checkout, ".cache", "plugin"),
		"coming.h", "comm->inGraph ? DYN_PLAN_DEFAULT_GRAPHS : DYN_PLAN_DEFAULT_CALLS", "DYN_PLAN_DEFAULT_CALLS")
	wrong := graphsInBlocks(t, plugin, "Ring/", "DYNAMICCL_NO_KERNELS=1")
	if want := fmt.Sprintf("a block of NCCL's default: %d.000 us", blocksDefaultUs); len(wrong) != 1 || !strings.HasPrefix(wrong[0], want) {
		t.Errorf("%q, want %s", wrong, want)
	}
}
