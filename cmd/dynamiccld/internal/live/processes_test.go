package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/tuner"
	"dynamiccl/tuner/store"
)

// llTable is a made-up node on which LL is the fastest by far.
func llTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us\n")
	row := func(choice string, us float64) {
		fmt.Fprintf(&b, "made-up,2.32.3,2,1,nvlink,quiet,AllReduce,65536,%s,%.3f\n", choice, us)
	}
	row("default,-,-,-", 40)
	for _, algorithm := range []string{"Tree", "Ring"} {
		for p, protocol := range []string{"LL", "LL128", "Simple"} {
			for _, channels := range []int{1, 2, 4, 8, 16, 24, 32} {
				row(fmt.Sprintf("collective,%s,%s,%d", algorithm, protocol, channels), 16+20*float64(min(p, 1))+1/float64(channels))
			}
		}
	}
	path := filepath.Join(t.TempDir(), "ll.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// With NCCL_SYM_NOWIN_ENABLE=1 LL is NCCL's device kernel for ranks that have a process each, and its classic one for several GPUs of a
// process. What is stored of the one is not given to the other, in no first plan either: not before it has been measured there.
func TestDeviceKernelsOfAProcessEach(t *testing.T) {
	const log2 = 16
	table := llTable(t)
	environ := []string{"NCCL_SYM_NOWIN_ENABLE=1", "FAKEGPU_OPTIONS=--nccl 2.32.3", "DYNAMICCL_NO_KERNELS=1"}
	r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%")
	r.start()
	client := control.NewClient(r.daemon.Dir)
	left := func() { r.until("all communicators left", func(s control.Status) bool { return len(s.Comms) == 0 }) }
	alone := func(more string, wanted func(b control.Bucket) bool) {
		t.Helper()
		group := r.workers(workers.Spec{Ranks: 2, Nodes: 1, MaxBytes: 1 << 20}, table, append(environ, more)...)
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
			if _, err := group.Call(t.Context(), time.Minute, "AllReduce", 1<<log2, 200); err != nil {
				t.Fatal(err)
			}
			buckets, err := client.Buckets(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if slices.ContainsFunc(buckets, func(b control.Bucket) bool { return b.Bucket.Log2Bytes == log2 && wanted(b) }) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("after a minute: %+v", buckets)
			}
		}
		if err := group.Close(context.Background()); err != nil {
			t.Error(err)
		}
		left()
	}
	device := func(b control.Bucket) bool { return b.Choice == "Ring/LL" && b.DeviceLL }
	alone("DYNAMICCL_RUN=", func(b control.Bucket) bool { return device(b) && b.SpeedUp > 1.3 })

	for _, how := range []string{"group", "threads"} { // nothing may be tried, so stored choices are all there is
		p := startOneProcess(r, how, 2, 1<<log2, "", table, append(environ, "DYNAMICCL_NO_EXPLORE=1")...)
		for range 6 {
			p.more()
		}
		p.learn(log2, func(b *control.Bucket) bool {
			if b.Choice != "default" || b.DeviceLL || b.Stored != 0 {
				t.Errorf("%s: %s, device kernel %v, %g as stored", how, b.Choice, b.DeviceLL, b.Stored)
			}
			return true
		})
		p.end()
		left()
	}
	for _, how := range []string{"group", "threads"} { // what they learn is theirs; the second starts with it
		p := startOneProcess(r, how, 2, 1<<log2, "", table, environ...)
		b := p.learn(log2, func(b *control.Bucket) bool { return strings.HasPrefix(b.Choice, "Ring/LL/") && b.SpeedUp > 1.3 })
		if b.DeviceLL {
			t.Errorf("%s: %s is said to be a device kernel", how, b.Choice)
		}
		p.end()
		left()
	}
	alone("DYNAMICCL_NO_EXPLORE=1", device)
	if s := r.status(); s.Core.Disagreed != 0 || s.Core.Incoherent != 0 || s.Unjoined != 0 {
		t.Errorf("%+v", s)
	}
	if err := r.daemon.Stop(); err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(filepath.Join(r.tmp, "store.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	kinds := map[bool]actions.Action{}
	if err := kept.All(func(l tuner.Learned) error {
		if l.Key.Bucket.Log2Bytes == log2 {
			kinds[strings.HasSuffix(l.Key.Machine, ", several GPUs a process")] = l.Action
		}
		return nil
	}); err != nil || len(kinds) != 2 || kinds[false].String() != "Ring/LL" || kinds[true].Channels == 0 {
		t.Errorf("%v: %v", err, kinds)
	}
}
