package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/workers"
)

// slowTable has NCCL take 300 us and more, whatever it runs.
func slowTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us\n")
	for _, bytes := range []int{1 << 12, 1 << 15} {
		fmt.Fprintf(&b, "made-up,2.28.9,2,1,nvlink,quiet,AllReduce,%d,default,-,-,-,300\n", bytes)
		for _, kind := range []string{"Tree,LL", "Tree,LL128", "Tree,Simple", "Ring,LL", "Ring,LL128", "Ring,Simple"} {
			for _, channels := range []int{1, 2, 4, 8, 16, 24, 32} {
				fmt.Fprintf(&b, "made-up,2.28.9,2,1,nvlink,quiet,AllReduce,%d,collective,%s,%d,400\n", bytes, kind, channels)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "slow.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// slowerKernels plays ranks whose calls our kernels run, sampled in every epoch, until these take 8 us more than 9, of which sends took 4,
// and gives the diagnoses that follow until there is one that says why.
func slowerKernels(t *testing.T, sentUs int) map[string]int {
	t.Helper()
	r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%", "--sample-every", "1")
	r.start()
	times := filepath.Join(r.tmp, "times")
	take := func(us, sentUs int) {
		t.Helper()
		if err := os.WriteFile(times+".new", fmt.Appendf(nil, "%d %d\n", us, sentUs), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(times+".new", times); err != nil {
			t.Fatal(err)
		}
	}
	take(9, 4)
	group := r.workers(workers.Spec{Ranks: 2, Nodes: 1, MaxBytes: 1 << 20}, slowTable(t), "FAKEGPU_KERNEL_FILE="+times, "FAKEGPU_KERNEL_GBS=20", "FAKEGPU_OPTIONS=--nccl 2.28.9",
		"DYNAMICCL_KERNELS="+r.kernelsFile(), "DYNAMICCL_SCRATCH_MIB=8")
	defer func() {
		if err := group.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	client := control.NewClient(r.daemon.Dir)
	deadline := time.Now().Add(time.Minute)
	call := func() []control.Bucket {
		t.Helper()
		for _, bytes := range []uint64{1 << 12, 1 << 15} {
			called, err := group.Call(t.Context(), time.Minute, "AllReduce", bytes, 100)
			if err != nil {
				t.Fatal(err)
			}
			allRight(t, called)
		}
		buckets, err := client.Buckets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", buckets)
		}
		return buckets
	}
	settled := func(buckets []control.Bucket) (n int) {
		for _, b := range buckets {
			if strings.HasPrefix(b.Choice, "lsa/") && !b.Exploring && b.Calls > 1500 {
				n++
			}
		}
		return n
	}
	for settled(call()) < 2 {
	}
	take(17, sentUs)
	changed := time.Now().Truncate(time.Second) // as the daemon tells
	found := map[string]int{}
	for told := 0; told == 0; {
		clear(found)
		for _, b := range call() {
			if b.DiagnosedAt != nil && !b.DiagnosedAt.Before(changed) {
				found[b.Diagnosis]++
				if b.Diagnosis != "unknown" {
					told++
				}
			}
		}
	}
	return found
}

// What became slower at the receiver is told from what became slower here by the times that our kernels leave of themselves, from a rank's
// kernel to what the daemon says.
func TestCountersTellWhichSide(t *testing.T) {
	for _, c := range []struct {
		name   string
		sentUs int
		want   string
	}{{"the receiver", 4, "remote-side"}, {"here", 12, "backend-fallback"}} {
		t.Run(c.name, func(t *testing.T) {
			if found := slowerKernels(t, c.sentUs); found[c.want] == 0 || found["remote-side"] > 0 != (c.want == "remote-side") {
				t.Errorf("%v, want %s", found, c.want)
			}
		})
	}
}
