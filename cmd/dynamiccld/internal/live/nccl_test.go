package live

import (
	"os"
	"strings"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

func TestNCCLVersions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		args  []string
		tuned bool
		says  string // by each rank, on standard error; "": nothing
	}{
		{"2.28.9", []string{"--nccl", "2.28.9"}, true, ""},
		{"2.30.7", []string{"--nccl", "2.30.7"}, true, ""},
		{"2.32.3", []string{"--nccl", "2.32.3"}, true, ""},
		{"tuner 4 beside profiler 4, as NCCL 2.27", []string{"--max-tuner-abi", "4", "--max-profiler-abi", "4"}, true, ""},
		{"tuner 3 beside profiler 3: no communicator id", []string{"--max-tuner-abi", "3", "--max-profiler-abi", "3"}, false, "this NCCL speaks tuner v3, which names no communicator: running plain NCCL; tuning needs NCCL 2.28"},
		{"tuner 2 beside profiler 1", []string{"--max-tuner-abi", "2", "--max-profiler-abi", "1"}, false, "this NCCL speaks tuner v2, which names no communicator: running plain NCCL; tuning needs NCCL 2.28"},
		{"tuner 4 beside profiler 3, as NCCL 2.26", []string{"--max-tuner-abi", "4", "--max-profiler-abi", "3"}, false, "this NCCL tells the tuner no communicator id: running plain NCCL; tuning needs NCCL 2.28"},
		{"ranks as threads of one process", []string{"--threads", "4"}, true, ""},
		{"several communicators", []string{"--comms", "3"}, true, ""},
		{"groups", []string{"--group", "4,0.5"}, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.start()
			run := r.ranks("versions", []Phase{{quiet, 4000}}, tc.args...)
			run.Rate = 3000
			r.begin(run)
			rep := r.finish(run)
			if (rep.Chosen > 0) != tc.tuned {
				t.Errorf("%d of %d calls chosen, want tuned = %v", rep.Chosen, rep.Compared, tc.tuned)
			}
			said, err := os.ReadFile(run.Output())
			if err != nil {
				t.Fatal(err)
			}
			lines, why := strings.Count(string(said), "dynamiccl: "), strings.Count(string(said), "dynamiccl: "+tc.says)
			if tc.says == "" && lines != 0 || tc.says != "" && (lines != 4 || why != 4) {
				t.Errorf("%d lines, %d of them with %q:\n%s", lines, why, tc.says, said)
			}
			r.noFilesLeft()
		})
	}
}

// The user's own NCCL_ALGO or NCCL_PROTO is respected on the whole communicator, and said.
func TestUsersChoiceIsRespected(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	run := r.ranks("user", []Phase{{quiet, 4000}})
	run.Rate, run.Env = 2000, []string{"NCCL_PROTO=Simple"}
	r.begin(run)
	s := r.until("a communicator that says why it passes through", func(s control.Status) bool {
		return len(s.Comms) == 1 && strings.Contains(s.Comms[0].Why, "NCCL_PROTO")
	})
	if s.Comms[0].Active {
		t.Error("the communicator is tuned")
	}
	if rep := r.finish(run); rep.Chosen != 0 {
		t.Errorf("%d calls were chosen against the user's NCCL_PROTO", rep.Chosen)
	}
}

// Without our profiler (the user has his own) stored choices are used and nothing is explored.
func TestStoredChoicesWithoutProfiler(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	learn := r.ranks("learn", []Phase{{quiet, 12000}})
	learn.Rate = 4000
	r.begin(learn)
	r.finish(learn)
	r.noFilesLeft()

	blind := r.ranks("blind", []Phase{{quiet, 4000}})
	blind.Args = []string{"--spawn"}
	blind.Rate, blind.Env = 2000, []string{"NCCL_PROFILER_PLUGIN=none"}
	r.begin(blind)
	rep := r.finish(blind)
	if rep.Chosen == 0 {
		t.Error("stored choices were not used")
	}
	if over := rep.Phases[0].OverDefault(); over > 1 {
		t.Errorf("stored choices took %.3f of NCCL's default", over)
	}
	if !r.says("runs without our profiler plugin") {
		t.Error("the daemon does not say that nothing is explored")
	}
	if s := r.status(); s.Samples == 0 {
		t.Error("the learning run gave no samples")
	}

	fresh := r.ranks("fresh", []Phase{{quiet, 1000}}, "--nccl", "2.28.9")
	fresh.Rate = 2000
	r.begin(fresh)
	r.finish(fresh)
	if !r.says("starting from stored choices") || !r.says("starting afresh") {
		t.Error("the daemon says neither that it starts from stored choices nor that another NCCL version starts afresh")
	}
}
