package sweep

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner/tunersim"
)

// Our kernels' rows and points are read back as the choices that they are, and people read them as such.
func TestSweepOfKernels(t *testing.T) {
	w := newWorld(t)
	text := strings.Join(tableColumns, ",") + "\n"
	for _, tail := range []string{"AllReduce,1048576,default,-,-,-,10.00", "AllReduce,1048576,collective,Ring,LL,8,9.00", "AllReduce,1048576,lsa,oneshot,-,4,8.00",
		"AllReduce,1048576,lsa,oneshot,-,16,6.00", "AllReduce,1048576,lsa,twoshot,-,16,4.00", "AllReduce,1048576,lsa,bulk,-,32,5.00", "AllReduce,1048576,lsa,bulk,-,64,7.00",
		"AllGather,1048576,default,-,-,-,10.00", "AllGather,1048576,lsa,oneshot,-,1,12.00"} {
		text += "m,2.28.9,4,4,socket,quiet," + tail + "\n"
	}
	var err error
	if w.table, err = tunersim.ReadTable(strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	var report strings.Builder
	o := w.options()
	o.Collectives, o.Sizes, o.Report = []string{"AllReduce", "AllGather"}, []uint64{1 << 20}, &report
	for range 2 { // the second time everything is in the journal
		if err := w.sweep(o); err != nil {
			t.Fatal(err)
		}
		if n := w.measured["AllReduce 1048576 lsa/twoshot/16"]; n != 1 {
			t.Errorf("measured %d times", n)
		}
	}
	got := readTable(t, o.Out)
	for _, b := range w.table.Buckets() {
		if want := w.table.Actions(b); len(got.Actions(b)) != len(want) {
			t.Errorf("%s: rows of %v, want %v", b, got.Actions(b), want)
		}
		for _, a := range w.table.Actions(b) {
			want, _ := w.table.Cost(b, a)
			if ns, ok := got.Cost(b, a); !ok || math.Abs(ns-want) > 1e-6 {
				t.Errorf("%s %s: %g, %v; want %g", b, a, ns, ok, want)
			}
		}
	}
	if !strings.Contains(report.String(), " lsa/twoshot/16 ") {
		t.Errorf("the report names no kernel:\n%s", &report)
	}
}

// A kernel whose CTAs were its own has a row of those that ran.
func TestRowOfAKernelWithItsOwnCTAs(t *testing.T) {
	p := Point{Collective: "AllReduce", Bytes: 1024, Action: "lsa/oneshot", Ran: "lsa/oneshot/4", MedianUs: 4, Outcome: OutcomeOK}
	if c, err := choiceColumns(p); err != nil || c != [4]string{"lsa", "oneshot", "-", "4"} {
		t.Errorf("%v, %v", c, err)
	}
	gin := Point{Action: "gin/proxy/8", Ran: "gin/proxy/4", MedianUs: 4, Outcome: OutcomeOK}
	if c, err := choiceColumns(gin); err != nil || c != [4]string{"gin", "proxy", "-", "8"} || choiceName(c) != gin.Action {
		t.Errorf("GIN: %v, %v", c, err)
	}
	gin.Action, gin.Ran = "gin/proxy/8/c2", "gin/proxy/4/c2"
	if c, err := choiceColumns(gin); err != nil || c != [4]string{"gin", "proxy", "c2", "8"} || choiceName(c) != gin.Action {
		t.Errorf("CTAs that share contexts: %v, %v", c, err)
	}
	threads := Point{Action: "lsa/bulk/64/t256", Ran: "lsa/bulk/64", MedianUs: 4, Outcome: OutcomeOK}
	if c, err := choiceColumns(threads); err != nil || c != [4]string{"lsa", "bulk", "t256", "64"} || choiceName(c) != threads.Action {
		t.Errorf("threads: %v, %v", c, err)
	}
	p.Ran = ""
	if c, err := choiceColumns(p); err == nil {
		t.Errorf("CTAs that nobody knows: %v", c)
	}
}

// A device kernel has no number of channels; its row is read back as the choice that learners have. Of other kernels a
// table wants the number.
func TestRowOfTheDeviceKernel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "table.csv")
	all := []Point{
		{Collective: "AllReduce", Bytes: 1024, Action: "default", Ran: "Ring/LL/4", MedianUs: 9, Outcome: OutcomeOK},
		{Collective: "AllReduce", Bytes: 1024, Action: "Ring/LL", Ran: deviceKernel, MedianUs: 4.5, Outcome: OutcomeOK},
		{Collective: "AllReduce", Bytes: 1024, Action: "NVLS/Simple", Ran: "NVLS/Simple/16", MedianUs: 7, Outcome: OutcomeOK},
	}
	w := newTable(path, &Description{Identity: Identity{Machine: "m", NCCL: "2.32.3", Ranks: 4, Nodes: 1, Transport: "nvlink", Condition: "quiet"}})
	if n, err := w.write(all); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := tunersim.ReadTable(f)
	if err != nil {
		t.Fatal(err)
	}
	a, err := actions.Parse("Ring/LL")
	if err != nil {
		t.Fatal(err)
	}
	if ns, ok := table.Cost(state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}, a); !ok || ns != 4500 {
		t.Errorf("%s is in the table: %v, %g ns", a, ok, ns)
	}
	all[1].Ran = ""
	if _, err := w.write(all); err == nil {
		t.Error("a row without channels was written")
	}
}
