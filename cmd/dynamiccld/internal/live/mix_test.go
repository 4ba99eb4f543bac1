package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/internal/testbuild"
)

// mixLine is what mix says of a case.
type mixLine struct {
	Case, Result, Why, Ours string
	Kernels                 int      `json:"kernels_run"`
	Wrong                   uint64   `json:"wrong"`
	Said                    []string `json:"said"`
}

// mix runs cases of nccltuner/gputest/mix.cu over the stand-ins, each rank on a GPU, with a daemon that tries whatever there is. ours: lsa, or
// gin, between two nodes.
func mix(t *testing.T, library string, ranks int, ours, cases string, environ ...string) map[string]mixLine {
	t.Helper()
	return mixFor(t, "2", library, ranks, ours, cases, environ...)
}

// mixFor is mix with cases of so many seconds, and of 256 calls or more.
func mixFor(t *testing.T, seconds, library string, ranks int, ours, cases string, environ ...string) map[string]mixLine {
	t.Helper()
	return mixRig(t).mix(seconds, library, ranks, ours, cases, environ...)
}

func mixRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, "--explore-budget", "50%", "--sample-every", "1")
	r.start()
	return r
}

// mix runs them with the rig's daemon.
func (r *rig) mix(seconds, library string, ranks int, ours, cases string, environ ...string) map[string]mixLine {
	r.Helper()
	fake := r.standIns()
	ctx, cancel := context.WithTimeout(r.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(fake, "mix"), "cases", "--ranks", fmt.Sprint(ranks), "--nodes", map[string]string{"lsa": "1", "none": "1", "gin": "2"}[ours], "--ours", ours,
		"--seconds", seconds, "--hang-seconds", "40", "--only", cases)
	cmd.Env = append(r.programEnv(library+":"+filepath.Join(fake, "libnccl.so.2"), r.build.Table(fmt.Sprintf("h200x%d-nvlink-quiet", ranks))), "DYNAMICCL_GIN_KERNELS="+r.kernelsFile())
	cmd.Env = append(cmd.Env, environ...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.Fatal(err)
	}
	lines := map[string]mixLine{}
	for _, text := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		var line mixLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			r.Fatalf("%q: %v; %s", text, err, &said)
		}
		lines[line.Case] = line
	}
	if len(lines) != 1+strings.Count(cases, ",") {
		r.Fatalf("%+v: %s", lines, &said)
	}
	return lines
}

// Cases that GPUs run, with calls run by our kernels in each.
func TestMixOverStandIns(t *testing.T) {
	t.Parallel()
	library := filepath.Join(built(t).Lib, "libdynamiccl.so")
	for _, run := range []struct {
		ranks       int
		ours, cases string
	}{{4, "lsa", "processes-uneven"}, {2, "lsa", "all-to-all-v,registered,registered-apart,ends-in-flight,rank-killed"}, {4, "lsa", "rank-killed"}, {2, "gin", "all-to-all-v,rank-killed"}} {
		t.Run(fmt.Sprint(run.ranks, " ranks, ", run.ours), func(t *testing.T) {
			for name, line := range mix(t, library, run.ranks, run.ours, run.cases) {
				t.Logf("%+v", line)
				if line.Result != "pass" || line.Wrong != 0 || line.Kernels == 0 || line.Ours != run.ours {
					t.Errorf("%s: %+v", name, line)
				}
			}
		})
	}
}

// NCCL's device kernels have no AllReduce that averages, and which calls do a tuner does not hear: with LL among the choices, none may be one,
// nor where no rank has a record and LL is NCCL's own choice.
func TestMixOnDeviceKernels(t *testing.T) {
	t.Parallel()
	for _, directory := range []string{"", "DYNAMICCL_DIR=/proc/none"} {
		for name, line := range mix(t, filepath.Join(built(t).Lib, "libdynamiccl.so"), 4, "none", "everything", "DYNAMICCL_NO_KERNELS=1", "NCCL_SYM_NOWIN_ENABLE=1", "FAKEGPU_OPTIONS=--nccl 2.32.3", directory) {
			t.Logf("%+v", line)
			if line.Result != "pass" || line.Wrong != 0 {
				t.Errorf("%s %s: %+v", name, directory, line)
			}
		}
	}
}

// NCCL takes LL for a call with one buffer in a window to be its device kernel, which averages lack, and which reads some addresses wrongly
// before 2.30.3: with LL among the choices, none of a plan's is in force there.
func TestMixOnHalvesOfWindows(t *testing.T) {
	t.Parallel()
	library := filepath.Join(built(t).Lib, "libdynamiccl.so")
	for _, run := range []struct{ version, noWindows string }{{"2.29.7", "1"}, {"2.30.7", "0"}, {"2.30.7", "1"}, {"2.32.3", "0"}} {
		t.Run(run.version+", "+run.noWindows, func(t *testing.T) {
			line := mixFor(t, "1", library, 2, "none", "registered-halves", "DYNAMICCL_NO_KERNELS=1", "NCCL_SYM_NOWIN_ENABLE="+run.noWindows, "FAKEGPU_OPTIONS=--nccl "+run.version)["registered-halves"]
			t.Logf("%+v", line)
			if line.Result != "pass" || line.Wrong != 0 {
				t.Errorf("%+v", line)
			}
		})
	}
}

// From 2.29.2 on NCCL's profiler hears nothing of a Broadcast, unless it is a collective like any other: what ran is not known, and counted so.
func TestBroadcastsAreUntold(t *testing.T) {
	t.Parallel()
	library := filepath.Join(built(t).Lib, "libdynamiccl.so")
	for _, run := range []struct {
		version, enabled string
		untold           bool
	}{{"2.30.7", "1", true}, {"2.30.7", "0", false}} {
		t.Run(run.version+", "+run.enabled, func(t *testing.T) {
			r := mixRig(t)
			var status control.Status
			for range 4 { // which sizes are tried, and sampled, is chance
				r.mix("2", library, 2, "none", "plans-under-eager-calls", "DYNAMICCL_NO_KERNELS=1", "NCCL_SYM_NOWIN_ENABLE=0", "FAKEGPU_OPTIONS=--nccl "+run.version, "NCCL_ALLGATHERV_ENABLE="+run.enabled)
				if status = r.status(); !run.untold || status.Core.Ran.Untold > 0 {
					break
				}
			}
			if ran := status.Core.Ran; ran.Chosen == 0 || ran.Overruled != 0 || ran.NotKnown != 0 || ran.Untold != 0 != run.untold {
				t.Errorf("%+v, untold %v wanted; not known: %+v", ran, run.untold, status.Unknown)
			}
		})
	}
}

// NCCL's kernels are right as well, so without ours it would pass.
func TestMixWithoutKernels(t *testing.T) {
	t.Parallel()
	for name, line := range mix(t, filepath.Join(built(t).Lib, "libdynamiccl.so"), 2, "lsa", "plans-under-eager-calls", "DYNAMICCL_NO_KERNELS=1") {
		t.Logf("%+v", line)
		if line.Result != "failed" || line.Kernels != 0 || line.Wrong != 0 || line.Ours != "none: DYNAMICCL_NO_KERNELS" {
			t.Errorf("%s: %+v", name, line)
		}
	}
}

// Nobody is told that a rank has died, or not who; a communicator goes before its kernels are over: all are found.
func TestMixFindsPlantedMistakes(t *testing.T) {
	t.Parallel()
	preload := filepath.Join(checkout, "nccltuner", "preload")
	objects, err := filepath.Abs(filepath.Join(checkout, ".cache", "preload"))
	if err != nil {
		t.Fatal(err)
	}
	for _, mistake := range []struct{ at, folder, file, old, new, want string }{
		{"ends-in-flight", preload, "device.c", "  else dyn_lsa_wait(b->lsa); /* which another thread's abort ends */", "", "calls are still under way"},
		{"rank-killed", preload, "device.c", "return dyn_lsa_missed(b->lsa) ? DYN_REMOTE_ERROR : ", "return ", "there was no ncclRemoteError"},
		{"rank-killed", filepath.Join(checkout, "kernels", "host"), "watch.c", `"rank %d, process %u, is dead", rank, lsa->peers[rank].pid`, `"a rank is dead"`, "standard error does not say"},
	} {
		t.Run(mistake.at+" "+mistake.file, func(t *testing.T) {
			build, dir := t.TempDir(), t.TempDir()
			if err := errors.Join(os.Mkdir(filepath.Dir(testbuild.Objects(build, preload)), 0o700), os.Symlink(objects, testbuild.Objects(build, preload))); err != nil {
				t.Fatal(err)
			}
			library := testbuild.MistakenPreload(t, build, dir, preload, mistake.folder, mistake.file, mistake.old, mistake.new)
			testbuild.Found(t, mistake.old, 5, func() bool { // which kernel waits for the dead is the learner's choice of the moment, and of NCCL's nothing is promised
				line := mix(t, library, 2, "lsa", mistake.at)[mistake.at]
				t.Logf("%+v", line)
				return line.Result == "failed" && strings.Contains(line.Why, mistake.want)
			})
		})
	}
}
