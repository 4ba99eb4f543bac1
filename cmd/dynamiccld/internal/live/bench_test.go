package live

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner/ranklog"
)

// The benchmarks below are experiments, not loops: each runs once, prints its figures as JSON lines for `make bench` and
// fails when a bound of the design is missed.

func figure(b *testing.B, name string, values map[string]any) {
	b.Helper()
	values["figure"] = name
	line, err := json.Marshal(values)
	if err != nil {
		b.Fatal(err)
	}
	fmt.Println(string(line))
}

// benchRig is a rig for a benchmark: rig's helpers want a *testing.T.
type benchRig struct {
	build  Build
	tmp    string
	daemon Daemon
}

func newBenchRig(b *testing.B, serveArgs ...string) *benchRig {
	b.Helper()
	root, err := filepath.Abs(checkout)
	if err != nil {
		b.Fatal(err)
	}
	build, err := BuildIn(root)
	if err != nil {
		b.Fatal(err)
	}
	tmp := b.TempDir()
	dir := filepath.Join(tmp, "run")
	if err := os.Mkdir(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	r := &benchRig{build, tmp, Daemon{Build: build, Dir: dir, Log: filepath.Join(tmp, "daemon.log"),
		Args: append([]string{"--store", filepath.Join(tmp, "store.db")}, serveArgs...)}}
	if err := r.daemon.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = r.daemon.Stop() }) // the figures are in; a daemon that ends badly fails the tests
	return r
}

func (r *benchRig) ranks(b *testing.B, run *Ranks) {
	b.Helper()
	run.Build, run.Dir, run.Folder = r.build, r.daemon.Dir, r.tmp
	run.Args = append([]string{"--spawn", "--require-plugin"}, run.Args...)
	if err := run.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(run.Kill)
}

func (r *benchRig) compare(b *testing.B, run *Ranks) ranklog.Report {
	b.Helper()
	logs, err := filepath.Glob(strings.Replace(run.LogPattern(), "%r", "*", 1))
	if err != nil {
		b.Fatal(err)
	}
	rep, err := ranklog.CompareFiles(logs...)
	if err != nil {
		b.Fatal(err)
	}
	return rep
}

// cpuNs is the processor time that a process has used, user and system (/proc/PID/stat fields 14 and 15, in ticks of
// 10 ms on every Linux that Go runs on).
func cpuNs(b *testing.B, pid int) time.Duration {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// BenchmarkDaemonLoad: 8 ranks with 10,000 collectives a second each.
func BenchmarkDaemonLoad(b *testing.B) {
	for b.Loop() {
		r := newBenchRig(b)
		run := &Ranks{Name: "load", Phases: []Phase{{nvlink, 150_000}}, Rate: 10_000, Seed: 1}
		r.ranks(b, run)
		time.Sleep(3 * time.Second) // the first seconds are exploration
		client := control.NewClient(r.daemon.Dir)
		before, err := client.Status(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		cpu, started := cpuNs(b, r.daemon.PID()), time.Now()
		time.Sleep(10 * time.Second)
		used, took := cpuNs(b, r.daemon.PID())-cpu, time.Since(started)
		after, err := client.Status(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := run.Wait(); err != nil {
			b.Fatal(err)
		}
		share := used.Seconds() / took.Seconds()
		calls := float64(after.Decisions-before.Decisions) / took.Seconds()
		figure(b, "daemon load", map[string]any{"ranks": 8, "collectives_per_second": calls, "samples_per_second": float64(after.Samples-before.Samples) / took.Seconds(),
			"core_share": share, "target_core_share": 0.02, "dropped": after.Dropped})
		if calls < 70_000 {
			b.Errorf("the ranks made %.0f collectives a second, wanted 80000: the machine is too busy for this figure", calls)
		}
	}
}

// BenchmarkAgreement: ten million calls on 8 ranks that stall at random, while the daemon is killed a hundred times.
func BenchmarkAgreement(b *testing.B) {
	const calls, comms, kills = 1_250_000, 4, 100
	for b.Loop() {
		r := newBenchRig(b, "--tick", "1ms", "--sample-every", "1")
		run := &Ranks{Name: "agree", Phases: []Phase{{nvlink, calls / 2}, {nvlink, calls / 2}}, Seed: 1,
			Args: []string{"--comms", strconv.Itoa(comms), "--stall", "0.0002,3000", "--window", "2048", "--group", "3,0.05", "--max-bytes", "1048576", "--noise", "0.3", "--rate", "30000"}}
		r.ranks(b, run)
		started := time.Now()
		ended := make(chan error, 1)
		go func() { ended <- run.Wait() }()
		killed, plans := 0, uint64(0)
		rng := rand.New(rand.NewPCG(1, 1))
		client := control.NewClient(r.daemon.Dir)
		for running := true; running; {
			select {
			case err := <-ended:
				if err != nil {
					b.Fatal(err)
				}
				running = false
			case <-time.After(time.Duration(50+rng.IntN(400)) * time.Millisecond):
				if killed == kills {
					continue
				}
				if s, err := client.Status(b.Context()); err == nil {
					plans += s.Publications
				}
				if err := r.daemon.Kill(); err != nil {
					b.Fatal(err)
				}
				killed++
				if err := r.daemon.Start(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		}
		if s, err := client.Status(b.Context()); err == nil {
			plans += s.Publications
		}
		rep := r.compare(b, run)
		figure(b, "agreement", map[string]any{"calls": rep.Compared * uint64(rep.Ranks), "ranks": rep.Ranks, "communicators": comms, "chosen": rep.Chosen * uint64(rep.Ranks),
			"plans_published": plans, "daemon_kills": killed, "disagreements": rep.Disagreements, "seconds": time.Since(started).Seconds()})
		if rep.Disagreements != 0 || rep.Compared != calls || killed < kills || plans < 1000 {
			b.Errorf("%d disagreements, %d calls compared on each rank, %d kills, %d plans", rep.Disagreements, rep.Compared, killed, plans)
		}
	}
}

// BenchmarkAdaptation: what the loop costs and how soon it follows when the fabric changes, for every learner and 3 seeds.
func BenchmarkAdaptation(b *testing.B) {
	phases := []struct{ table, name string }{{quiet, "quiet"}, {netLoad, "network load"}, {quiet, "quiet again"}}
	const calls = 12_000
	for b.Loop() {
		for _, learner := range []string{"default", "coordinate-descent", "ucb"} {
			for seed := uint64(1); seed <= 3; seed++ {
				r := newBenchRig(b, "--learner", learner, "--seed", strconv.FormatUint(seed, 10))
				run := &Ranks{Name: "adapt", Rate: 3000, Seed: seed, Args: []string{"--nccl", "2.28.9"}}
				for _, p := range phases {
					run.Phases = append(run.Phases, Phase{p.table, calls})
				}
				r.ranks(b, run)
				if err := run.Wait(); err != nil {
					b.Fatal(err)
				}
				rep := r.compare(b, run)
				for i, p := range rep.Phases {
					adapted, ok := p.MedianAdapted()
					never := slices.DeleteFunc(slices.Clone(p.Buckets), func(k ranklog.Bucket) bool { return k.AdaptedAfter >= 0 && k.AdaptedAfter <= 64 })
					figure(b, "adaptation", map[string]any{"learner": learner, "seed": seed, "phase": phases[i].name, "cost_over_default": p.OverDefault(),
						"cost_over_best": p.OverBest(), "median_calls_to_10pct": adapted, "median_known": ok, "buckets": len(p.Buckets),
						"buckets_not_within_64_calls": len(never), "disagreements": rep.Disagreements})
					if learner != "default" && (p.OverDefault() > 1.02 || i > 0 && (!ok || adapted > 64)) {
						b.Errorf("%s seed %d, %s: %.3f of the default, median bucket within 10%% of the best after %d calls", learner, seed, phases[i].name, p.OverDefault(), adapted)
					}
				}
				if err := r.daemon.Stop(); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
}
