package workers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// fakeVariable makes this test program a rank: "RANK WHAT", where WHAT happens at the first measurement of that rank.
const fakeVariable = "WORKERS_TEST_FAKE"

func TestMain(m *testing.M) {
	if what, set := os.LookupEnv(fakeVariable); set {
		fakeRank(what)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// fakeRank answers like a rank whose calls take 10 us and its number.
func fakeRank(what string) {
	flags := flag.NewFlagSet("rank", flag.ExitOnError)
	rank, ranks := flags.Int("rank", -1, ""), flags.Int("ranks", -1, "")
	device, nccl, most := flags.Int("device", -1, ""), flags.String("nccl", "", ""), flags.Uint64("max-bytes", 0, "")
	flags.Int("per-node", 0, "")
	_ = flags.Parse(os.Args[1:]) // ExitOnError
	fmt.Fprintf(os.Stderr, "rank %d of %d on device %d, %s, %d bytes\n", *rank, *ranks, *device, *nccl, *most)
	mine, does := 0, ""
	_, _ = fmt.Sscanf(what, "%d %s", &mine, &does) // "" is a rank that works
	say := func(v any) {
		line, _ := json.Marshal(v)
		os.Stdout.Write(append(line, '\n'))
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			say(map[string]string{"error": err.Error()})
			continue
		}
		if mine != *rank {
			does = ""
		}
		switch {
		case r.Do == "bye" && does != "stubborn":
			return
		case r.Do == "bye":
			time.Sleep(time.Hour)
		case r.Do == "id":
			say(map[string]string{"id": "ab12"})
		case r.Do == "init":
			say(Ready{NCCL: 22809, GPU: "Fake", UUID: r.ID, CommHash: os.Getenv(hostIDVariable)})
		case r.Do == "call":
			say(Called{Us: 10 + float64(*rank)})
		case r.Do == "load":
			say(map[string]bool{"ok": true})
		case does == "hang":
			time.Sleep(time.Hour)
		case does == "die":
			fmt.Fprintln(os.Stderr, "a GPU has fallen off the bus")
			os.Exit(3)
		case does == "refuse":
			say(map[string]string{"error": "ncclAllReduce: unhandled cuda error"})
		case does == "babble":
			fmt.Println("NCCL INFO hello")
		default:
			say(Measured{Us: []float64{10 + float64(*rank), float64(r.Calls)}, Grid: r.Replays})
		}
	}
}

func spec(t *testing.T, what string) Spec {
	return Spec{Program: os.Args[0], Ranks: 4, Nodes: 2, NCCL: "/lib/nccl", MaxBytes: 4096, Logs: t.TempDir(),
		Environ: []string{fakeVariable + "=" + what, "NCCL_HOSTID=the user's"}}
}

func started(t *testing.T, s Spec) (*Group, []Ready) {
	t.Helper()
	g, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Kill(); err != nil {
			t.Error(err)
		}
	})
	ready, err := g.Init(t.Context(), 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return g, ready
}

func TestGroup(t *testing.T) {
	t.Parallel()
	s := spec(t, "1 stubborn")
	s.Comms = 2
	g, ready := started(t, s)
	for rank, node := range []string{"0", "0", "1", "1"} {
		if r := ready[rank]; r.NCCL != 22809 || r.UUID != "ab12ab12" || r.CommHash != "dynamiccl-node"+node {
			t.Errorf("rank %d: %+v", rank, r)
		}
	}
	called, err := g.Call(t.Context(), 10*time.Second, "AllReduce", 1024, 16)
	if err != nil || called[3].Us != 13 {
		t.Errorf("calls: %+v, %v", called, err)
	}
	if err := g.Load(t.Context(), 10*time.Second, "none"); err != nil {
		t.Error(err)
	}
	got, err := g.Measure(t.Context(), 10*time.Second, Ask{Collective: "AllReduce", Bytes: 1024, Mode: Graph, Calls: 20, Replays: 50, MinReplays: 3, BudgetUs: 1})
	if err != nil || len(got) != 4 || got[2].Us[0] != 12 || got[2].Us[1] != 20 || got[0].Grid != 50 {
		t.Errorf("measured: %+v, %v", got, err)
	}
	log, err := os.ReadFile(filepath.Join(s.Logs, "rank2.log"))
	if want := "rank 2 of 4 on device 2, /lib/nccl, 4096 bytes\n"; err != nil || string(log) != want {
		t.Errorf("log %q, %v; want %q", log, err, want)
	}
	began := time.Now()
	if err := g.Close(t.Context()); err != nil { // rank 1 does not listen and is killed
		t.Error(err)
	}
	if took := time.Since(began); took < byeTime || took > byeTime+endTime {
		t.Errorf("ended after %v", took)
	}
	if _, err := g.Call(t.Context(), time.Second, "AllReduce", 1024, 16); err == nil {
		t.Error("ranks that have ended answered")
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what   string
		is     error
		within time.Duration // all that ranks which do not hang have, however busy the machine is
		says   []string
	}{
		{"1 hang", ErrHung, 2 * time.Second, []string{"measure: rank 1: ", "it said:\nrank 1 of 4"}},
		{"2 die", ErrDied, time.Minute, []string{"measure: rank 2", "exit status 3", "fallen off the bus"}},
		{"3 refuse", ErrRefused, time.Minute, []string{"measure: rank 3", "ncclAllReduce: unhandled cuda error"}},
		{"0 babble", nil, time.Minute, []string{"rank 0", "NCCL INFO hello", "one build"}},
	} {
		t.Run(strings.ReplaceAll(c.what, " ", "-"), func(t *testing.T) {
			t.Parallel()
			idle := 0
			s := spec(t, c.what)
			s.Idle = func() { idle++ }
			g, _ := started(t, s)
			_, err := g.Measure(t.Context(), c.within, Ask{Collective: "AllReduce", Bytes: 1024, Calls: 1, Replays: 1})
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("%v; want %v", err, c.is)
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q does not say %q", err, text)
				}
			}
			if c.is == ErrHung && idle == 0 {
				t.Error("nothing was done while waiting")
			}
			if _, again := g.Call(t.Context(), time.Second, "AllReduce", 1024, 16); again == nil {
				t.Error("a group that failed was asked again")
			}
			began := time.Now()
			if err := g.Close(t.Context()); err != nil || time.Since(began) >= byeTime {
				t.Errorf("ending took %v: %v", time.Since(began), err)
			}
		})
	}
}

func TestStopped(t *testing.T) {
	g, _ := started(t, spec(t, "1 hang"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := g.Measure(ctx, time.Minute, Ask{Collective: "AllReduce", Bytes: 1024, Calls: 1, Replays: 1})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 30*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

func TestStartRefuses(t *testing.T) {
	s := spec(t, "")
	s.Nodes = 3
	if _, err := Start(s); err == nil || !strings.Contains(err.Error(), "same number of ranks") {
		t.Errorf("4 ranks on 3 nodes: %v", err)
	}
	s.Nodes, s.Program = 2, filepath.Join(t.TempDir(), Name)
	if _, err := Start(s); err == nil || !strings.Contains(err.Error(), "`make`") {
		t.Errorf("no program: %v", err)
	}
	if _, err := FindProgram(s.Program); err == nil || !strings.Contains(err.Error(), "--worker") {
		t.Errorf("no program beside: %v", err)
	}
}

func TestCountGPUs(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0,1, 3": 3, "GPU-ab,GPU-cd": 2, "0,-1,2": 1, "-1": 0, ",": 0} {
		n, err := CountGPUs(t.Context(), func(string) string { return list })
		if n != want || (err == nil) != (want > 0) {
			t.Errorf("CUDA_VISIBLE_DEVICES=%s: %d, %v; want %d", list, n, err, want)
		}
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	smi := func(script string) {
		if err := os.WriteFile(filepath.Join(dir, "nvidia-smi"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	none := func(string) string { return "" }
	smi("echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'; echo '  MIG 1g'; echo 'GPU 1: NVIDIA H200 (UUID: GPU-2)'")
	if n, err := CountGPUs(t.Context(), none); n != 2 || err != nil {
		t.Errorf("two GPUs: %d, %v", n, err)
	}
	smi("echo 'no devices were found' >&2; exit 6")
	if _, err := CountGPUs(t.Context(), none); err == nil || !strings.Contains(err.Error(), "no devices were found") {
		t.Errorf("a driver that fails: %v", err)
	}
}
