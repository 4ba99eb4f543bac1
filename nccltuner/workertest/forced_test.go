package workertest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// Bits of NCCL's activation mask.
const maskColl, maskKernelCh = 1 << 1, 1 << 6

// forcer is what a sweep does to the plugin: it finds the communicator's record and publishes plans of one entry.
type forcer struct {
	t         *testing.T
	scanner   *nccltuner.Scanner
	dir       *nccltuner.Dir
	record    *nccltuner.Record
	publisher *nccltuner.Publisher
	rings     []*nccltuner.Ring
	nextID    uint32
}

func newForcer(t *testing.T, path string, ranks int) *forcer {
	t.Helper()
	dir, err := nccltuner.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Lock(); err != nil {
		t.Fatal(err)
	}
	f := &forcer{t: t, dir: dir, scanner: nccltuner.NewScanner(dir)}
	var c nccltuner.Changes
	if err := f.scanner.Scan(&c); err != nil {
		t.Fatal(err)
	}
	if len(c.Records) != 1 || len(c.Rings) != ranks || len(c.Rejected) != 0 {
		t.Fatalf("%d records, %d rings, rejected %v; want 1 and %d", len(c.Records), len(c.Rings), c.Rejected, ranks)
	}
	f.record, f.rings = c.Records[0], c.Rings
	if f.publisher, err = nccltuner.NewPublisher(f.record); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(f.scanner.Close(), f.dir.Close()); err != nil {
			t.Error(err)
		}
	})
	return f
}

// watch asks all processes for samples with these events.
func (f *forcer) watch(mask uint32) {
	f.t.Helper()
	for _, r := range f.rings {
		if err := errors.Join(r.SetWantMask(mask), r.Beat()); err != nil {
			f.t.Fatal(err)
		}
	}
}

// drain gives all samples since the last time.
func (f *forcer) drain() []nccltuner.Sample {
	f.t.Helper()
	var all []nccltuner.Sample
	buffer := make([]nccltuner.Sample, 1024)
	for _, r := range f.rings {
		for {
			n, err := r.Drain(buffer)
			if err != nil {
				f.t.Fatal(err)
			}
			all = append(all, buffer[:n]...)
			if n < len(buffer) {
				break
			}
		}
	}
	return all
}

// force brings a choice into force on all ranks.
func (f *forcer) force(g group, collective actions.Collective, bytes int, a actions.Action) {
	f.t.Helper()
	bucket, _ := state.BucketOf(collective, uint64(bytes))
	f.nextID++
	spec := &nccltuner.PlanSpec{SampleEvery: 1, Entries: []nccltuner.EntrySpec{{Bucket: bucket, ID: f.nextID, Base: a.Word()}}}
	version, err := f.publisher.Publish(spec)
	if err := errors.Join(err, f.record.Beat()); err != nil {
		f.t.Fatal(err)
	}
	f.watch(maskColl)
	allRight(f.t, "while the plan changes", g.ask(callLine(collective.String(), bytes, 2*nccltuner.EpochCalls)))
	var v nccltuner.RecordView
	if err := f.record.View(&v); err != nil {
		f.t.Fatal(err)
	}
	for _, r := range v.Ranks {
		if r.Version != version || r.Ignored != 0 {
			f.t.Fatalf("rank %d: plan %d in force and not %d, %d choices ignored", r.Rank, r.Version, version, r.Ignored)
		}
	}
}

// What a plan says runs and takes what the table says of it, in graphs and on the stream, whoever watches.
func TestForcedChoices(t *testing.T) {
	for _, ranks := range []int{2, 4} {
		env, dir := pluginEnv(t)
		g := startGroup(t, ranks, sameEnv(append(env, "DYNAMICCL_FORCED=1", "FAKEGPU_TABLE="+writeTable(t, ranks, 1))...))
		hash := g.init()[0].CommHash
		f := newForcer(t, dir, ranks)
		if want := "comm-" + hash + ".shm"; f.record.Name() != want {
			t.Errorf("init says that the record is %s, it is %s", want, f.record.Name())
		}
		for a := range tableAlgorithms {
			for p := range tableProtocols {
				for _, channels := range []int{1, 8, 32} {
					for _, bytes := range []int{65536, 4 << 20} {
						choice := actions.Action{Path: actions.PathCollective, Algorithm: actions.Algorithm(a), Protocol: actions.Protocol(p), Channels: uint8(channels)}
						what := fmt.Sprintf("%d ranks, %v at %d bytes", ranks, choice, bytes)
						f.force(g, actions.AllReduce, bytes, choice)
						f.drain()
						for _, mode := range []string{"graph", "stream"} {
							replies := g.ask(measureLine("AllReduce", bytes, mode, 20, 5, 5, 0, 0))
							allRight(t, what, replies)
							for _, r := range replies {
								near(t, what+" as "+mode, r.Us, choiceUs(bytes, a, p, channels))
								if bytes == 4<<20 && mode == "graph" && r.Grid != channels {
									t.Errorf("%s: %d blocks in the graph", what, r.Grid)
								}
							}
						}
						f.ran(what, ranks*20, choice)
					}
				}
			}
		}
		g.bye()
	}
}

// launchNs is the part of a call that is not its kernel's (LAUNCH_NS of the harness's proxy.c).
const launchNs = 4600

// ran demands at least n samples of a choice, and none of another but the defaults of the ranks' agreements.
func (f *forcer) ran(what string, n int, want actions.Action) {
	f.t.Helper()
	seen := 0
	for _, s := range f.drain() {
		if s.Bytes < 1024 {
			continue
		}
		if s.Captured {
			if s.Action != want {
				f.t.Errorf("%s: captured %+v", what, s)
			}
			continue
		}
		seen++
		if s.Action != want || s.Ran.Algorithm != want.Algorithm || s.Ran.Protocol != want.Protocol || !s.Untimed {
			f.t.Errorf("%s: sample %+v", what, s)
			return
		}
	}
	if seen < n {
		f.t.Errorf("%s: %d samples, want %d", what, seen, n)
	}
}

// Kernel events cost the graph that they are captured into its speed, and nothing on the stream. Here the promise that
// there are no graphs is broken.
func TestWatchedCapture(t *testing.T) {
	const bytes, calls = 65536, 10
	env, dir := pluginEnv(t)
	g := startGroup(t, 2, sameEnv(append(env, "DYNAMICCL_FORCED=1", "DYNAMICCL_KERNEL_EVENTS=1", "DYNAMICCL_NO_GRAPHS=1", "FAKEGPU_TABLE="+writeTable(t, 2, 1), "LD_PRELOAD="+build+"/libnccl.so.2")...))
	g.init()
	f := newForcer(t, dir, 2)
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 8}
	f.force(g, actions.AllReduce, bytes, ring)
	f.watch(maskColl | maskKernelCh)
	us := choiceUs(bytes, 1, 0, 8)
	g.ask(callLine("AllReduce", bytes, 2*nccltuner.EpochCalls)) // the window opens with an epoch
	f.drain()
	for _, r := range g.ask(measureLine("AllReduce", bytes, "stream", calls, 5, 5, 0, 0)) {
		near(t, "on the stream", r.Us, us)
	}
	timed := slices.DeleteFunc(f.drain(), func(s nccltuner.Sample) bool { return s.Bytes != bytes || s.Untimed })
	if len(timed) == 0 {
		t.Error("no timed samples")
	}
	for _, s := range timed {
		if ns := int64(s.SignalNs) + launchNs - int64(us*1e3); ns < -2 || ns > 2 {
			t.Errorf("sample %+v, the table says %.3f us", s, us)
			break
		}
	}
	for _, r := range g.ask(measureLine("AllReduce", bytes, "graph", calls, 5, 5, 0, 0)) {
		near(t, "captured while watched", r.Us, us+30.0/calls) // the first of the graph's calls alone
	}
	f.watch(0)
	g.ask(callLine("AllReduce", bytes, 2*nccltuner.EpochCalls))
	for _, r := range g.ask(measureLine("AllReduce", bytes, "graph", calls, 5, 5, 0, 0)) {
		near(t, "captured unwatched", r.Us, us)
	}
}
