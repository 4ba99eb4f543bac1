package live

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
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

// BenchmarkDaemonLoad: 8 ranks with 10,000 collectives a second each, for each learner that is shipped as a choice of its own: from the
// third second on, in most of which newcomers are still looked at in every tick, and once they are no newcomers any more.
func BenchmarkDaemonLoad(b *testing.B) {
	const target, window = 0.02, 10 * time.Second
	for b.Loop() {
		for _, learner := range []string{"lstm", "coordinate-descent"} {
			r := newRig(b, "--learner", learner)
			r.start()
			run := r.ranks("load", []Phase{{nvlink, 260_000}})
			run.Rate = 10_000
			r.begin(run)
			values := map[string]any{"ranks": 8, "learner": learner, "target_core_share": target}
			for _, w := range []struct {
				name string
				wait time.Duration
			}{{"", 3 * time.Second}, {"settled_", time.Second}} { // the first seconds are exploration
				time.Sleep(w.wait)
				before, cpu, started := r.status(), cpuNs(b, r.daemon.PID()), time.Now()
				time.Sleep(window)
				used, took := cpuNs(b, r.daemon.PID())-cpu, time.Since(started)
				after := r.status()
				share, calls := used.Seconds()/took.Seconds(), float64(after.Decisions-before.Decisions)/took.Seconds()
				values[w.name+"core_share"], values[w.name+"collectives_per_second"] = share, calls
				values[w.name+"samples_per_second"], values["dropped"] = float64(after.Samples-before.Samples)/took.Seconds(), after.Dropped
				if share > target {
					b.Errorf("%s: the daemon used %.4f of a core, want at most %g", learner, share, target)
				}
				if calls < 70_000 {
					b.Errorf("the ranks made %.0f collectives a second, wanted 80000: the machine is too busy for this figure", calls)
				}
			}
			figure(b, "daemon load", values)
			if err := run.Wait(); err != nil {
				b.Fatal(err)
			}
			if err := r.daemon.Stop(); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkAgreement: ten million calls on 8 ranks that stall at random, while the daemon is killed a hundred times.
func BenchmarkAgreement(b *testing.B) {
	const calls, comms, kills = 1_250_000, 4, 100
	for b.Loop() {
		r := newRig(b, "--tick", "1ms", "--sample-every", "1")
		r.start()
		run := r.ranks("agree", []Phase{{nvlink, calls}}, "--comms", strconv.Itoa(comms), "--stall", "0.0002,3000", "--window", "2048",
			"--group", "3,0.05", "--max-bytes", "1048576", "--noise", "0.3")
		run.Rate = 18_000
		r.begin(run)
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
			case <-time.After(time.Duration(50+rng.IntN(250)) * time.Millisecond):
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
		rep := r.compare(run)
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
		for _, learner := range []string{"default", "coordinate-descent", "ucb", "lstm"} {
			for seed := uint64(1); seed <= 3; seed++ {
				r := newRig(b, "--learner", learner, "--seed", strconv.FormatUint(seed, 10))
				r.start()
				run := r.ranks("adapt", nil, "--nccl", "2.28.9")
				run.Rate, run.Seed = 3000, seed
				for _, p := range phases {
					run.Phases = append(run.Phases, Phase{p.table, calls})
				}
				r.begin(run)
				rep := r.finish(run)
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
