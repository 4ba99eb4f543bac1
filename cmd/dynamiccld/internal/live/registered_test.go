package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/workers"
)

// On registered memory NCCL takes a symmetric kernel though its ring is faster: the daemon finds that by names, and what NCCL refuses to
// run by name leaves the choices. The same calls are nothing of the ordinary bucket's.
func TestClosedLoopOnRegisteredMemory(t *testing.T) {
	const bytes, calls = 1 << 16, 200
	r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%")
	r.start()
	// Symmetric kernels take 7.3 us here, and 8.3; ours 50.
	group := r.workers(workers.Spec{Ranks: 2, Nodes: 1, MaxBytes: 1 << 20, Registered: true}, ringTable(t, 5), "FAKEGPU_OPTIONS=--nccl 2.32.3", "FAKEGPU_KERNEL_US=50",
		"DYNAMICCL_KERNELS="+r.kernelsFile(), "DYNAMICCL_SCRATCH_MIB=8")
	defer func() {
		if err := group.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	client := control.NewClient(r.daemon.Dir)
	var found *control.Bucket
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		// A reduce has NCCL connect rings, which nothing else here runs: only then may they be tried. (Of a broadcast nobody would hear it.)
		if _, err := group.Call(t.Context(), time.Minute, "Reduce", bytes, 32); err != nil {
			t.Fatal(err)
		}
		called, err := group.Call(t.Context(), time.Minute, "AllReduce", bytes, calls)
		if err != nil {
			t.Fatal(err)
		}
		allRight(t, called)
		buckets, err := client.Buckets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found = nil
		for i, b := range buckets {
			switch {
			case b.Bucket.Log2Bytes != 16 || b.Bucket.Collective == actions.Reduce:
			case b.Bucket.Collective == actions.AllReduceRegistered:
				found = &buckets[i]
			default:
				t.Fatalf("calls on registered memory are in bucket %s", b.Bucket)
			}
		}
		if found != nil && found.Choice == "Ring/Simple" && found.SpeedUp > 1.2 && symmetricTried(found) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after two minutes: %+v\n%+v", found, r.status())
		}
	}
	for _, c := range found.Tried {
		if strings.Contains(c.Action, "MC") || strings.Contains(c.Action, "Tma") || strings.HasPrefix(c.Action, "NVLS") {
			t.Errorf("%s is refused, and has %d calls", c.Action, c.Calls)
		}
	}
	if s := r.status(); s.Unjoined != 0 || s.Core.Disagreed != 0 {
		t.Errorf("%d unjoined, %d disagreed", s.Unjoined, s.Core.Disagreed)
	}
}

func symmetricTried(b *control.Bucket) (n int) {
	for _, c := range b.Tried {
		if strings.HasPrefix(c.Action, "symmetric/") {
			n++
		}
	}
	return n
}

// ringTable is a made-up node on which every choice takes long but Ring/Simple.
func ringTable(t *testing.T, simpleUs float64) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us\n")
	fmt.Fprintf(&b, "made-up,2.32.3,2,1,nvlink,quiet,AllReduce,65536,default,-,-,-,40\n")
	fmt.Fprintf(&b, "made-up,2.32.3,2,1,nvlink,quiet,Reduce,65536,default,-,-,-,40\n")
	for _, algorithm := range []string{"Tree", "Ring"} {
		for _, protocol := range []string{"LL", "LL128", "Simple"} {
			us := 20.0
			if algorithm == "Ring" && protocol == "Simple" {
				us = simpleUs
			}
			for _, channels := range []int{1, 2, 4, 8, 16, 24, 32} {
				fmt.Fprintf(&b, "made-up,2.32.3,2,1,nvlink,quiet,AllReduce,65536,collective,%s,%s,%d,%.3f\n", algorithm, protocol, channels, us)
				if algorithm == "Ring" {
					fmt.Fprintf(&b, "made-up,2.32.3,2,1,nvlink,quiet,Reduce,65536,collective,%s,%s,%d,40\n", algorithm, protocol, channels)
				}
			}
		}
	}
	path := filepath.Join(t.TempDir(), "ring.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func allRight(t *testing.T, called []workers.Called) {
	t.Helper()
	for rank, c := range called {
		if c.Wrong > 0 {
			t.Fatalf("rank %d: %d elements are wrong", rank, c.Wrong)
		}
	}
}
