package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner"
)

// ofLayout builds the daemon of a release whose shared memory has another layout number.
func ofLayout(t *testing.T, layout int) string {
	t.Helper()
	root, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(root, "nccltuner", "abi_gen.go")
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	of := func(n int) string { return "ABIVersion              = " + strconv.Itoa(n) + "\n" }
	if strings.Count(string(text), of(nccltuner.ABIVersion)) != 1 {
		t.Fatalf("%s does not say %q", source, of(nccltuner.ABIVersion))
	}
	tmp := t.TempDir()
	other, overlay, program := filepath.Join(tmp, "abi_gen.go"), filepath.Join(tmp, "overlay.json"), filepath.Join(tmp, "dynamiccld")
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {source: other}})
	if err == nil {
		err = os.WriteFile(other, []byte(strings.Replace(string(text), of(nccltuner.ABIVersion), of(layout), 1)), 0o600)
	}
	if err == nil {
		err = os.WriteFile(overlay, replaced, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program, "./cmd/dynamiccld")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make has compiled the rest
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// A daemon of another release takes the place of one whose ranks live, older or newer: it leaves their files alone, they go on with
// the last agreed choices, what starts beside it runs plain NCCL and says why, and so do the commands. The right daemon takes over
// again. Ranks agree all along.
func TestDaemonOfAnotherLayout(t *testing.T) {
	for name, layout := range map[string]int{"older": nccltuner.ABIVersion - 1, "newer": nccltuner.ABIVersion + 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			other := Daemon{Build: r.build, Dir: r.daemon.Dir, Log: filepath.Join(r.tmp, "other.log"), Args: []string{"--store", "none"}}
			other.Build.Daemon = ofLayout(t, layout)
			r.start()
			run := r.ranks("lives", []Phase{{quiet, 40_000}})
			run.Rate = 3000
			r.begin(run)
			r.until("plans", func(s control.Status) bool { return len(s.Comms) == 1 && s.Comms[0].PlanVersion > 3 })
			if err := r.daemon.Stop(); err != nil {
				t.Fatal(err)
			}
			before := r.files()
			if err := other.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer other.Stop()

			// What starts now.
			fresh := r.ranks("fresh", []Phase{{quiet, 3000}})
			fresh.Rate, fresh.Env = 3000, []string{"NCCL_DEBUG=INFO"}
			r.begin(fresh)
			r.until("the others are seen", func(s control.Status) bool { return len(s.Others) == 1 && s.Others[0].Processes == 8 })
			if out, code := r.ask("status"); code != 0 || !strings.Contains(out, fmt.Sprintf("not tuned: 8; their plugin has shared-memory layout %d and this daemon %d: restart the daemon", nccltuner.ABIVersion, layout)) || strings.Contains(out, "no communicators") {
				t.Errorf("status, exit code %d:\n%s", code, out)
			}
			if out, code := r.ask("doctor"); code != 1 || !strings.Contains(out, fmt.Sprintf("speaks shared-memory layout %d: programs with the plugin of this release, which has %d, run plain NCCL", layout, nccltuner.ABIVersion)) {
				t.Errorf("doctor, exit code %d:\n%s", code, out)
			}
			for _, c := range []struct {
				args []string
				code int
			}{{[]string{"why", "AllReduce", "64K"}, 4}, {[]string{"links"}, 4}, {[]string{"table"}, 4}} {
				if out, code := r.ask(c.args...); code != c.code {
					t.Errorf("%v: exit code %d, want %d:\n%s", c.args, code, c.code, out)
				}
			}
			if rep := r.finish(fresh); rep.Compared != 3000 || rep.Chosen != 0 {
				t.Errorf("%d of 3000 calls, %d chosen by nobody", rep.Compared, rep.Chosen)
			}
			text, err := os.ReadFile(fresh.Output())
			if said := strings.Count(string(text), fmt.Sprintf("speaks shared-memory layout %d and this library %d: running plain NCCL; restart", layout, nccltuner.ABIVersion)); err != nil || said != 4 {
				t.Errorf("%d of 4 processes say why, %v", said, err)
			}
			user := exec.Command(r.build.Daemon, "run", "--", "true")
			user.Env = append(cleanEnvironment(), "DYNAMICCL_DIR="+r.daemon.Dir, "HOME="+r.tmp)
			if out, err := user.CombinedOutput(); err != nil || !strings.Contains(string(out), fmt.Sprintf("speaks shared-memory layout %d and this release %d: the program runs as plain NCCL", layout, nccltuner.ABIVersion)) {
				t.Errorf("run: %v\n%s", err, out)
			}
			if said, err := os.ReadFile(other.Log); err != nil || strings.Count(string(said), "are left alone") != 1 {
				t.Errorf("the other daemon does not say once what it leaves alone: %v\n%s", err, said)
			}

			// What dies beside it leaves nothing.
			dead := r.ranks("dead", []Phase{{quiet, 40_000}})
			dead.Rate = 3000
			r.begin(dead)
			r.until("the others are seen", func(s control.Status) bool { return len(s.Others) == 1 && s.Others[0].Processes == 8 })
			if len(r.files()) == len(before) {
				t.Error("ranks that live have no files")
			}
			dead.Kill()
			if err := dead.Wait(); err == nil {
				t.Error("ranks that were killed ended well")
			}
			r.until("the dead ranks' files are gone", func(control.Status) bool { return len(r.files()) == len(before) })

			// What was there is there, and is taken over by the next daemon of its release.
			if err := other.Stop(); err != nil {
				t.Error(err)
			}
			for file, inode := range before {
				if now := r.files()[file]; now != inode {
					t.Errorf("%s was inode %d and is %d", file, inode, now)
				}
			}
			r.start()
			r.until("plans of the right daemon", func(s control.Status) bool { return len(s.Comms) == 1 && s.Publications > 0 && len(s.Others) == 0 })
			if rep := r.finish(run); rep.Compared != 40_000 || rep.Chosen == 0 {
				t.Errorf("%d of 40000 calls, %d chosen", rep.Compared, rep.Chosen)
			}
			r.noFilesLeft()
		})
	}
}

// files are the inodes of what ranks have made in the directory.
func (r *rig) files() map[string]uint64 {
	r.Helper()
	all := map[string]uint64{}
	for _, pattern := range []string{"comm-*", "ring-*"} {
		names, err := filepath.Glob(filepath.Join(r.daemon.Dir, pattern))
		if err != nil {
			r.Fatal(err)
		}
		for _, name := range names {
			info, err := os.Stat(name)
			if errors.Is(err, fs.ErrNotExist) {
				continue // deleted since it was listed: ranks and daemons do that at any time
			}
			if err != nil {
				r.Fatal(err)
			}
			all[name] = info.Sys().(*syscall.Stat_t).Ino
		}
	}
	return all
}
