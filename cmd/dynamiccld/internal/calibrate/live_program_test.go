package calibrate

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// serve starts a daemon without trials, and gives what ends it.
func (h *host) serve(run string) (end func()) {
	h.Helper()
	daemon, _, log := h.command("serve", "--dir", run, "--store", h.path("s.db"), "--no-explore")
	if err := daemon.Start(); err != nil {
		h.Fatal(err)
	}
	end = func() {
		_ = daemon.Process.Signal(unix.SIGTERM) // its end is waited for
		if err := daemon.Wait(); err != nil {
			h.Errorf("%v\n%s", err, log)
		}
		h.alone()
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(run, "control.sock")); err == nil {
			return end
		}
		if time.Now().After(deadline) {
			end()
			h.Fatalf("the daemon did not start:\n%s", log)
		}
	}
}

// liveRun is the run that a program belongs to.
const liveRun = 7

// program starts ranks as `dynamiccld run` would start a program's; the caller closes them before the daemon.
func (h *host) program(run string, spec workers.Spec) *workers.Group {
	h.Helper()
	plugin, environ := filepath.Join(h.root, "lib"), slices.Clone(h.environ)
	if spec.Registered { // calls are named by the preload library
		environ = append(environ, "LD_PRELOAD="+filepath.Join(plugin, "libdynamiccl.so")+":"+filepath.Join(h.root, ".cache", "fakegpu", "libnccl.so.2"))
	}
	spec.Program, spec.Nodes, spec.Logs = filepath.Join(h.root, "bin", "dynamiccl-worker"), 1, h.dir
	spec.Environ = append(environ, nccltuner.DirVariable+"="+run, "DYNAMICCL_RUN="+control.RunID(liveRun), "NCCL_TUNER_PLUGIN="+filepath.Join(plugin, "libnccl-tuner-dynamiccl.so"),
		"NCCL_PROFILER_PLUGIN="+filepath.Join(plugin, "libnccl-profiler-dynamiccl.so"))
	group, err := workers.Start(spec)
	if err != nil {
		h.Fatal(err)
	}
	if _, err := group.Init(h.Context(), time.Minute); err != nil {
		h.Fatal(err)
	}
	return group
}

// close lets the ranks of a program end.
func (h *host) close(group *workers.Group) {
	h.Helper()
	if err := group.Close(context.Background()); err != nil {
		h.Error(err)
	}
}

// graphs checks that graphs of the ranks take what the choices took that are stored.
func (h *host) graphs(group *workers.Group, buckets []BucketResult) {
	h.Helper()
	for _, b := range buckets {
		if us := h.graph(group, b); us < b.ChoiceUs*0.99 || us > b.ChoiceUs*1.01 {
			h.Errorf("%s %d: the graph takes %.2f us, calibrated %.2f with %s, default %.2f", b.Collective, b.MinBytes, us, b.ChoiceUs, b.Choice, b.DefaultUs)
		}
	}
}

// graph gives what a call takes in a graph of the ranks.
func (h *host) graph(group *workers.Group, b BucketResult) (us float64) {
	h.Helper()
	c, _ := actions.ParseCollective(b.Collective)
	got, err := group.Measure(h.Context(), time.Minute, workers.Ask{Collective: c.Plain().String(), Bytes: b.MinBytes, Mode: workers.Graph, Calls: 5,
		WarmUs: 100, Replays: 3, MinReplays: 3, BudgetUs: 100})
	if err != nil {
		h.Fatal(err)
	}
	return forced.Median(got[0].Us)
}

// plan waits for a plan of the directory's only record that is wanted.
func (h *host) plan(run string, wanted func(*nccltuner.RecordView, map[state.Bucket]actions.Action) bool) map[state.Bucket]actions.Action {
	h.Helper()
	dir, err := nccltuner.OpenDir(run)
	if err != nil {
		h.Fatal(err)
	}
	defer dir.Close()
	scanner := nccltuner.NewScanner(dir)
	defer scanner.Close()
	var changes nccltuner.Changes
	var record *nccltuner.Record
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err := scanner.Scan(&changes); err != nil {
			h.Fatal(err)
		}
		for _, r := range changes.Records {
			record = r
		}
		var view nccltuner.RecordView
		if record == nil || record.View(&view) != nil || view.NewestVersion == 0 {
			continue
		}
		bases, err := record.NewestBases()
		if err != nil {
			h.Fatal(err)
		}
		if wanted(&view, bases) {
			return bases
		}
	}
	h.Fatal("no plan came")
	return nil
}
