package live

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/tuner/tunersim"
)

// The loop on programs that call NCCL, whose calls the preload library times by CUDA events: what the daemon learns of
// every choice is what the table says, and the best ring is chosen; trees would be faster, and NCCL would have to connect them first.
// Calls follow each other with nothing beside them, so what they add to their step is what they take.
func TestClosedLoopByEvents(t *testing.T) {
	for _, reward := range []string{"call", "exposed"} {
		t.Run(reward, func(t *testing.T) { closedLoopByEvents(t, reward) })
	}
}

func closedLoopByEvents(t *testing.T, reward string) {
	// eventsNs is what a timed call is charged less, since two real events take as much, and earlyNs where its kernel would begin
	// before the one before ends; stand-ins' take nothing.
	const bytes, calls, eventsNs, earlyNs = 1 << 16, 200, 2000, 1500
	r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%", "--reward", reward)
	r.start()
	table := treeTable(t)
	group := r.workers(workers.Spec{Ranks: 4, Nodes: 1, MaxBytes: 4 << 20}, table, "DYNAMICCL_NO_KERNELS=1") // else those that `make kernels` left in lib/ would be tried
	defer func() {
		if err := group.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	client := control.NewClient(r.daemon.Dir)
	var b *control.Bucket
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err := group.Call(t.Context(), time.Minute, "AllReduce", bytes, calls); err != nil {
			t.Fatal(err)
		}
		buckets, err := client.Buckets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b = nil
		for i := range buckets {
			if buckets[i].Bucket.Log2Bytes == 16 {
				b = &buckets[i]
			}
		}
		// On its way descent has others in force, too.
		if b != nil && len(b.Tried) > 8 && strings.HasPrefix(b.Choice, "Ring/") && b.SpeedUp >= 1.3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute: %+v\n%+v", b, r.status())
		}
		time.Sleep(5 * time.Millisecond)
	}
	f, err := os.Open(table)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := tunersim.ReadTable(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range b.Tried {
		action, err := actions.Parse(c.Action)
		if err != nil {
			t.Fatal(err)
		}
		if action.Path == actions.PathCollective && action.Algorithm == actions.Tree {
			t.Errorf("%s was tried, which the program has not run", c.Action)
		}
		ns, ok := want.Cost(b.Bucket, action)
		ns -= eventsNs
		// Fewer channels may run than are asked for, and what a call adds to its step is asked of the steps.
		early := action.Channels >= 16 && math.Abs(c.MeanNs/(ns-earlyNs)-1) <= 0.01
		if ok && !early && math.Abs(c.MeanNs/ns-1) > 0.01 {
			t.Errorf("%s: %.0f ns by %d calls, want %.0f", c.Action, c.MeanNs, c.Calls, ns)
		}
	}
	if (b.Reward != "") != (reward != "call") {
		t.Errorf("reward %q of --reward %s", b.Reward, reward)
	}
	if s := r.status(); s.Unjoined != 0 || s.Samples < 4*b.Calls {
		t.Errorf("%d samples for %d calls, %d unjoined", s.Samples, b.Calls, s.Unjoined)
	}
}

// treeTable is a made-up node on which trees are faster than rings, and both than NCCL's default.
func treeTable(t *testing.T) string { return treeTableOf(t, 4) }

func treeTableOf(t testing.TB, ranks int) string { return treeTableTimes(t, ranks, 1) }

// treeTableTimes is one on which all of that takes so many times as long.
func treeTableTimes(t testing.TB, ranks int, times float64) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us\n")
	row := func(choice string, us float64) {
		fmt.Fprintf(&b, "made-up,2.30.7,%d,1,nvlink,quiet,AllReduce,65536,%s,%.3f\n", ranks, choice, us*times)
	}
	row("default,-,-,-", 40)
	for a, algorithm := range []string{"Tree", "Ring"} {
		for p, protocol := range []string{"LL", "LL128", "Simple"} {
			for _, channels := range []int{1, 2, 4, 8, 16, 24, 32} {
				row(fmt.Sprintf("collective,%s,%s,%d", algorithm, protocol, channels), 20+8*float64(a)+3*float64(p)+8/float64(channels))
			}
		}
	}
	path := filepath.Join(t.TempDir(), "tree.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
