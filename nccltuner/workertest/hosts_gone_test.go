package workertest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/internal/testbuild"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// Two pretended hosts, each with shared files of its own, of two ranks each.
const (
	numHosts  = 2
	onHost    = 2
	goneBytes = 65536

	goneAfter = 10 * time.Second           // of a process: DYN_HOSTS_GONE_NS
	goneSoon  = goneAfter + 3*time.Second  // when ranks have heard it, and their kernels ended, on a machine that has time for them
	goneBound = goneAfter + 45*time.Second // and on one that tests keep busy
)

// startHosts gives ranks of two hosts that run kernels over GIN.
func startHosts(t *testing.T, preload string, collective actions.Collective) group {
	t.Helper()
	kernels, table := filepath.Join(t.TempDir(), "kernels.fatbin"), writeTable(t, numHosts*onHost, numHosts)
	write(t, kernels, "\x50\xed\x55\xba") // all that the stand-in for CUDA looks at
	var plugin [numHosts][]string
	var dirs [numHosts]string
	for h := range numHosts {
		plugin[h], dirs[h] = pluginEnv(t)
	}
	g := startGroup(t, numHosts*onHost, func(rank int) []string {
		return append([]string{"FAKEGPU_TABLE=" + table, "FAKEGPU_OPTIONS=--nccl 2.28.9", "FAKEGPU_GIN_TYPES=2", "FAKEGPU_KERNEL_US=4", "DYNAMICCL_GIN=1", "DYNAMICCL_GIN_KERNELS=" + kernels,
			fmt.Sprintf("NCCL_HOSTID=host%d", rank/onHost), "LD_PRELOAD=" + preload + ":" + build + "/libnccl.so.2"}, plugin[rank/onHost]...)
	}, "--per-node", fmt.Sprint(onHost))
	g.init()
	allRight(t, "before a plan", g.ask(callLine(collective.String(), goneBytes, nccltuner.EpochCalls))) // all have marked what they can run
	newForcer(t, dirs[0], onHost).agree(g, collective, actions.Action{Path: actions.PathGIN, Backend: actions.BackendProxy, Channels: 4})
	for _, r := range g.ask(measureLine(collective.String(), goneBytes, "graph", 20, 5, 5, 0, 0)) {
		if len(r.Us) == 0 || r.Us[0] > 6 || *r.Wrong != 0 {
			t.Fatalf("%v: %+v; kernels over GIN take 4 us", collective, r)
		}
	}
	return g
}

// agree brings a choice into force on the ranks of all hosts, by a plan of rank 0's.
func (f *forcer) agree(g group, collective actions.Collective, a actions.Action) {
	f.t.Helper()
	bucket, _ := state.BucketOf(collective, goneBytes)
	version, err := f.publisher.Publish(&nccltuner.PlanSpec{Entries: []nccltuner.EntrySpec{{Bucket: bucket, ID: 1, Base: a.Word()}}})
	if err != nil {
		f.t.Fatal(err)
	}
	var v nccltuner.RecordView
	for deadline := time.Now().Add(20 * time.Second); v.Agreed() != version; {
		allRight(f.t, "while the plan changes", g.ask(callLine(collective.String(), goneBytes, nccltuner.EpochCalls)))
		if err := f.record.View(&v); err != nil {
			f.t.Fatal(err)
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("plan %d is not in force: %q", version, v.Refused())
		}
	}
}

// ending is what a rank says of a call that a rank's death has ended.
type ending struct {
	reply
	told  bool
	after time.Duration
}

// killAmidst kills a rank while all are in calls, and gives what each other one says within the bound.
func (g group) killAmidst(collective actions.Collective, killed int, bound time.Duration) []ending {
	g[0].t.Helper()
	for _, w := range g {
		w.send(callLine(collective.String(), goneBytes, 2000)) // a second
	}
	time.Sleep(40 * time.Millisecond)
	for rank, w := range g {
		if len(w.replies) > 0 {
			w.t.Fatalf("rank %d is done before a rank is killed", rank)
		}
	}
	at := time.Now()
	if err := g[killed].cmd.Process.Kill(); err != nil {
		g[0].t.Fatal(err)
	}
	said := make([]ending, len(g))
	for waiting := len(g) - 1; waiting > 0 && time.Since(at) < bound; time.Sleep(5 * time.Millisecond) {
		for rank, w := range g {
			if rank == killed || said[rank].told {
				continue
			}
			if said[rank].reply, said[rank].told = w.receive(0); said[rank].told {
				said[rank].after = time.Since(at)
				waiting--
			}
		}
	}
	return said
}

// A rank is killed while kernels over GIN run between hosts. Each other rank's kernels end, those on its host within seconds and others
// within what docs/design.md, decision 30, says; its next call is NCCL's error, and it says who is gone. A worker that fails has waited for its
// stream before: nothing runs on, and the process ends by itself, but not while another thread is about to say it. One on the other host that sees
// its neighbour end first names that one.
func TestRankKilledBetweenHosts(t *testing.T) {
	const is = "  const char *why = atomic_load(&lsa->stopped);\n"
	const slow = `
  if (gettid() == getpid()) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
#define dyn_host_say(...) (nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL), dyn_host_say(__VA_ARGS__))
`
	for _, c := range []struct {
		collective actions.Collective
		killed     int
		says       string // on the other host
		slow       bool   // whoever says it takes long
	}{
		{actions.AllReduce, 3, "rank 3, on another host, is gone", false},
		{actions.AllReduce, 3, "rank 3, on another host, is gone", true},
		{actions.AllToAll, 0, "the process that made this communicator's id, on another host, is gone", false},
	} {
		t.Run(fmt.Sprintf("%v %d %v", c.collective, c.killed, c.slow), func(t *testing.T) {
			t.Parallel()
			preload := build + "/libdynamiccl.so"
			if c.slow {
				preload = testbuild.MistakenPreload(t, build, t.TempDir(), "../preload", "../../kernels/host", "launch.c", is, is+slow)
			}
			g := startHosts(t, preload, c.collective)
			named := 0
			for rank, e := range g.killAmidst(c.collective, c.killed, goneBound) {
				if rank == c.killed {
					continue
				}
				says, orSays, least, most := c.says, fmt.Sprintf("rank %d, process %d, is dead", rank^1, g[rank^1].cmd.Process.Pid), goneAfter, goneBound
				if rank/onHost == c.killed/onHost {
					says, orSays, least, most = fmt.Sprintf("rank %d, process %d, is dead", c.killed, g[c.killed].cmd.Process.Pid), "\x00", 0, goneAfter-time.Second/2
				}
				if !e.told || e.after < least || e.after > most || !strings.Contains(e.Error, "(6)") || !strings.Contains(e.Error, "remote process exited") {
					t.Errorf("rank %d, after %v: %v, %+v; want ncclRemoteError after %v to %v", rank, e.after, e.told, e.reply, least, most)
				}
				if code := g[rank].ended("a call failed"); code != 1 {
					t.Errorf("rank %d: exit code %d", rank, code)
				}
				text := g[rank].stderr.String() // behind its end: another thread says it
				if strings.Contains(text, says) {
					named++
				} else if !strings.Contains(text, orSays) {
					t.Errorf("rank %d does not say %q: %q", rank, says, text)
				}
			}
			if named < 2 { // the one beside it, and who heard first
				t.Errorf("%d ranks name the one that was killed", named)
			}
		})
	}
}

// Where the hub does not say who is gone, or nobody asks, kernels on the other host wait for the dead rank.
func TestRankKilledBetweenHostsFindsPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ folder, file, is, mistake string }{
		{"../hosts", "hub.c", "    miss(hub, c, nowNs);\n", ""},
		{"../preload", "bound.c", "dyn_lsa_gone = dyn_hosts_gone;", ";"},
	} {
		t.Run(m.file+" "+m.is, func(t *testing.T) {
			t.Parallel()
			g := startHosts(t, testbuild.MistakenPreload(t, build, t.TempDir(), "../preload", m.folder, m.file, m.is, m.mistake), actions.AllReduce)
			for rank, e := range g.killAmidst(actions.AllReduce, 3, goneSoon) {
				if rank/onHost != 3/onHost && e.told {
					t.Errorf("not found: rank %d, after %v: %+v", rank, e.after, e.reply)
				}
			}
		})
	}
}
