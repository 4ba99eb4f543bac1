package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// mixLine is what mix says of a case.
type mixLine struct {
	Case, Result, Why, Ours string
	Kernels                 int      `json:"kernels_run"`
	Wrong                   uint64   `json:"wrong"`
	Said                    []string `json:"said"`
}

// mix runs cases of nccltuner/gputest/mix.cu over the stand-ins, on two GPUs with a daemon that tries whatever there is.
func mix(t *testing.T, library, cases string, environ ...string) map[string]mixLine {
	t.Helper()
	r := newRig(t, "--explore-budget", "50%", "--sample-every", "1")
	r.start()
	fake := r.standIns()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(fake, "mix"), "cases", "--ranks", "2", "--ours", "lsa", "--hang-seconds", "40", "--only", cases)
	cmd.Env = append(r.programEnv(library+":"+filepath.Join(fake, "libnccl.so.2"), r.build.Table("h200x2-nvlink-quiet")), environ...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	lines := map[string]mixLine{}
	for _, text := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		var line mixLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%q: %v; %s", text, err, &said)
		}
		lines[line.Case] = line
	}
	if len(lines) != 1+strings.Count(cases, ",") {
		t.Fatalf("%+v: %s", lines, &said)
	}
	return lines
}

// Cases that GPUs run, with calls run by our kernels in each.
func TestMixOverStandIns(t *testing.T) {
	t.Parallel()
	for name, line := range mix(t, filepath.Join(built(t).Lib, "libdynamiccl.so"), "plans-under-eager-calls,all-to-all-v,registered,registered-apart,ends-in-flight,rank-killed") {
		t.Logf("%+v", line)
		if line.Result != "pass" || line.Wrong != 0 || line.Kernels == 0 {
			t.Errorf("%s: %+v", name, line)
		}
	}
}

// NCCL's kernels are right as well, so without ours each of these would pass.
func TestMixWithoutKernels(t *testing.T) {
	t.Parallel()
	for name, line := range mix(t, filepath.Join(built(t).Lib, "libdynamiccl.so"), "plans-under-eager-calls,registered,ends-in-flight,rank-killed", "DYNAMICCL_NO_KERNELS=1") {
		t.Logf("%+v", line)
		if line.Result != "failed" || line.Kernels != 0 || line.Wrong != 0 || line.Ours != "none: DYNAMICCL_NO_KERNELS" {
			t.Errorf("%s: %+v", name, line)
		}
	}
}

// Nobody is told that a rank has died, or not who: both are found.
func TestMixFindsPlantedMistakes(t *testing.T) {
	t.Parallel()
	preload := filepath.Join(checkout, "nccltuner", "preload")
	objects, err := filepath.Abs(filepath.Join(checkout, ".cache", "preload"))
	if err != nil {
		t.Fatal(err)
	}
	for _, mistake := range []struct{ folder, file, old, new, want string }{
		{preload, "device.c", "return dyn_lsa_missed(b->lsa) ? DYN_REMOTE_ERROR : ", "return ", "there was no ncclRemoteError"},
		{filepath.Join(checkout, "kernels", "host"), "watch.c", `"rank %d, process %u, is dead", rank, lsa->peers[rank].pid`, `"a rank is dead"`, "standard error does not say"},
	} {
		t.Run(mistake.file, func(t *testing.T) {
			build, dir := t.TempDir(), t.TempDir()
			if err := errors.Join(os.Mkdir(filepath.Dir(testbuild.Objects(build, preload)), 0o700), os.Symlink(objects, testbuild.Objects(build, preload))); err != nil {
				t.Fatal(err)
			}
			library := testbuild.MistakenPreload(t, build, dir, preload, mistake.folder, mistake.file, mistake.old, mistake.new)
			if line := mix(t, library, "rank-killed")["rank-killed"]; line.Result != "failed" || !strings.Contains(line.Why, mistake.want) {
				t.Errorf("%+v", line)
			}
		})
	}
}
