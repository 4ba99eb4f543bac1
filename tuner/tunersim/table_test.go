package tunersim

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

func load(t testing.TB, name string) *Table {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "measurements", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := ReadTable(f)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return table
}

func must(t testing.TB, s string) actions.Action {
	t.Helper()
	a, err := actions.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

const (
	quietFile   = "h200x4-socket-2nodes-quiet.csv"
	networkFile = "h200x4-socket-2nodes-network-load.csv"
	cpuFile     = "h200x4-socket-2nodes-cpu-load.csv"
	nvlinkFile  = "h200x8-nvlink.csv"
)

func TestRecordedTables(t *testing.T) {
	for _, c := range []struct {
		file      string
		buckets   int
		shape     state.Shape
		condition string
		skipped   int
	}{
		{quietFile, 18, state.Shape{Ranks: 4, Nodes: 2, Transport: "socket"}, "quiet", 0},
		{networkFile, 18, state.Shape{Ranks: 4, Nodes: 2, Transport: "socket"}, "network-load", 0},
		{cpuFile, 4, state.Shape{Ranks: 4, Nodes: 2, Transport: "socket"}, "cpu-load", 0},
		{nvlinkFile, 30, state.Shape{Ranks: 8, Nodes: 1, Transport: "nvlink"}, "quiet", 30},
	} {
		table := load(t, c.file)
		if got := len(table.Buckets()); got != c.buckets || table.Shape != c.shape || table.Condition != c.condition ||
			table.NCCL != "2.28.9" || table.Skipped != c.skipped {
			t.Errorf("%s: %d buckets, %v %q, NCCL %s, %d skipped", c.file, got, table.Shape, table.Condition, table.NCCL, table.Skipped)
		}
		for _, b := range table.Buckets() {
			set := table.Actions(b)
			if set[0] != actions.Default || len(set) < 19 {
				t.Errorf("%s %s: set of %d actions starting with %s", c.file, b, len(set), set[0])
			}
			least := math.Inf(1)
			for _, a := range set {
				ns, _ := table.Cost(b, a)
				least = min(least, ns)
			}
			best, ns, ok := table.Best(b)
			if cost, _ := table.Cost(b, best); !ok || ns != least || cost != least {
				t.Errorf("%s %s: best %s at %f, the least cost is %f", c.file, b, best, ns, least)
			}
		}
	}
}

func TestRecordedCosts(t *testing.T) {
	quiet := load(t, quietFile)
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}
	if ns, ok := quiet.Default(b); !ok || math.Abs(ns-56590) > 0.01 {
		t.Errorf("default %f", ns)
	}
	if ns, ok := quiet.Cost(b, must(t, "Tree/LL/1")); !ok || ns != 34800 {
		t.Errorf("Tree/LL/1 %f", ns)
	}
	if _, ok := quiet.Cost(b, must(t, "NVLS/Simple/16")); ok {
		t.Error("a cost for what was not measured")
	}
	if _, ok := quiet.Default(state.Bucket{Collective: actions.Broadcast, Log2Bytes: 10}); ok {
		t.Error("a cost for a collective that was not measured")
	}
	// The default of the NVLink table was measured twice: 16.74 and 15.37 us.
	nvlink := load(t, nvlinkFile)
	if ns, _ := nvlink.Default(b); math.Abs(ns-1000*math.Sqrt(16.74*15.37)) > 1e-6 {
		t.Errorf("default %f is not the geometric mean", ns)
	}
	symmetric := actions.Action{Path: actions.PathSymmetric}
	if ns, ok := nvlink.Cost(b, symmetric); !ok || ns != 9590 {
		t.Errorf("symmetric %f", ns)
	}
	for _, a := range nvlink.Actions(b) {
		if a == symmetric {
			t.Error("the symmetric path is in the action set, but no tuner plugin can choose it")
		}
	}
}

func TestNearestSize(t *testing.T) {
	quiet := load(t, quietFile) // 1 KiB to 1 MiB in steps of four
	for _, c := range []struct {
		bytes uint64
		log2  uint8
	}{{1, 10}, {1024, 10}, {2047, 10}, {2049, 12}, {3 << 16, 18}, {1 << 40, 20}, {math.MaxUint64, 20}} {
		if b, ok := quiet.Nearest(actions.AllReduce, c.bytes); !ok || b.Log2Bytes != c.log2 {
			t.Errorf("%d bytes: bucket %v, want 2^%d", c.bytes, b, c.log2)
		}
	}
	if _, ok := quiet.Nearest(actions.AllReduce, 0); ok {
		t.Error("zero bytes have a bucket")
	}
	if _, ok := quiet.Nearest(actions.Reduce, 1024); ok {
		t.Error("a collective that was not measured has a bucket")
	}
}

const header = "machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us\n"

func TestReadTableRejects(t *testing.T) {
	row := func(tail string) string {
		return header + "m,2.28.9,4,2,socket,quiet,AllReduce,1024,default,-,-,-,50\nm,2.28.9,4,2,socket,quiet," + tail + "\n"
	}
	for _, c := range []struct{ name, in, want string }{
		{"empty", "", "the file is empty"},
		{"only a header", header, "no measurements"},
		{"missing column", strings.Replace(header, "bytes,", "", 1), `line 1: no column "bytes"`},
		{"column twice", strings.Replace(header, "machine", "bytes", 1) + "", `line 1: no column "machine"`},
		{"column repeated", strings.TrimSpace(header) + ",bytes\n", `line 1: column "bytes" twice`},
		{"short row", row("AllReduce,1024"), "line 3"},
		{"NaN", row("AllReduce,1024,collective,Ring,LL,1,NaN"), "line 3: median_us"},
		{"infinite", row("AllReduce,1024,collective,Ring,LL,1,+Inf"), "line 3: median_us"},
		{"negative", row("AllReduce,1024,collective,Ring,LL,1,-1"), "line 3: median_us"},
		{"zero", row("AllReduce,1024,collective,Ring,LL,1,0"), "line 3: median_us"},
		{"too long", row("AllReduce,1024,collective,Ring,LL,1,1e30"), "line 3: median_us"},
		{"zero bytes", row("AllReduce,0,collective,Ring,LL,1,5"), "line 3: bytes"},
		{"negative bytes", row("AllReduce,-4,collective,Ring,LL,1,5"), "line 3: bytes"},
		{"collective", row("AllGatherV,1024,collective,Ring,LL,1,5"), "line 3: collective"},
		{"path", row("AllReduce,1024,carrier pigeon,Ring,LL,1,5"), "line 3: path"},
		{"algorithm", row("AllReduce,1024,collective,Star,LL,1,5"), "line 3: algorithm"},
		{"protocol", row("AllReduce,1024,collective,Ring,LL256,1,5"), "line 3: protocol"},
		{"channels", row("AllReduce,1024,collective,Ring,LL,256,5"), "line 3: channels"},
		{"no channels", row("AllReduce,1024,collective,Ring,Simple,0,5"), "line 3: channels"},
		{"no kernel", row("AllReduce,1024,lsa,Ring,-,4,5"), "line 3: kernel"},
		{"a kernel with a protocol", row("AllReduce,1024,lsa,oneshot,LL,4,5"), "line 3: path lsa has no algorithm and protocol"},
		{"a protocol of GIN", row("AllReduce,1024,gin,proxy,LL,4,5"), "line 3: path gin has contexts"},
		{"contexts that cannot be", row("AllReduce,1024,gin,proxy,c5,4,5"), "line 3: action"},
		{"contexts of no number", row("AllReduce,1024,gin,proxy,c0,4,5"), "line 3: path gin has contexts"},
		{"contexts of another path", row("AllReduce,1024,lsa,bulk,c2,4,5"), "line 3: path lsa"},
		{"kernel of another path", row("AllReduce,1024,gin,oneshot,-,4,5"), "line 3: backend"},
		{"too many CTAs", row("AllReduce,1024,lsa,oneshot,-,129,5"), "at most 128 CTAs"},
		{"no CTAs", row("AllReduce,1024,lsa,oneshot,-,0,5"), "line 3: channels"},
		{"one shot twice", row("AllReduce,1024,lsa,-,-,4,5\nm,2.28.9,4,2,socket,quiet,AllReduce,1024,lsa,oneshot,-,4,5"), "line 4: AllReduce 1024 bytes lsa/oneshot/4 is measured twice"},
		{"default with channels", row("AllReduce,1024,default,-,-,4,5"), "path default has no other fields"},
		{"no default", row("AllReduce,2048,collective,Ring,LL,1,5"), "no default row"},
		{"twice", row("AllReduce,1024,collective,Ring,LL,1,5\nm,2.28.9,4,2,socket,quiet,AllReduce,1024,collective,Ring,LL,1,5"), "line 4: AllReduce 1024 bytes Ring/LL/1 is measured twice"},
		{"another condition", header + "m,2.28.9,4,2,socket,quiet,AllReduce,1024,default,-,-,-,50\nm,2.28.9,4,2,socket,loud,AllReduce,4096,default,-,-,-,50\n", "line 3: another machine"},
		{"no ranks", header + "m,2.28.9,0,2,socket,quiet,AllReduce,1024,default,-,-,-,50\n", "line 2: nranks"},
		{"ranks", header + "m,2.28.9,4,x,socket,quiet,AllReduce,1024,default,-,-,-,50\n", "line 2: nnodes"},
	} {
		_, err := ReadTable(strings.NewReader(c.in))
		if !errors.Is(err, ErrBadTable) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestReadTableIgnoresMoreColumns(t *testing.T) {
	in := "p99_us," + strings.TrimSpace(header) + ",note\n" +
		"9,m,2.28.9,4,2,socket,quiet,AllReduce,1024,default,-,-,-,50,x\n9,m,2.28.9,4,2,socket,quiet,AllReduce,1024,default,-,-,-,72,x\n"
	table, err := ReadTable(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	if ns, _ := table.Default(table.Buckets()[0]); math.Abs(ns-60000) > 1e-6 {
		t.Errorf("default %f, want the geometric mean of both", ns)
	}
}

// Spreadsheets write a mark of the byte order before the first column.
func TestReadTableOfASpreadsheet(t *testing.T) {
	table, err := ReadTable(strings.NewReader("\ufeff" + strings.ReplaceAll(tiny, "\n", "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := ReadTable(strings.NewReader(tiny))
	if err != nil || table.Machine != plain.Machine || len(table.points) != len(plain.points) {
		t.Errorf("%+v, want %+v; %v", table, plain, err)
	}
}

// Our kernels stand in the algorithm's column; tables from before there were several have none there.
func TestReadTableWithKernels(t *testing.T) {
	in := header
	for _, tail := range []string{"default,-,-,-,10", "lsa,-,-,4,5", "lsa,oneshot,-,16,6", "lsa,twoshot,-,16,4", "lsa,bulk,-,32,7", "lsa,bulk,-,-,8", "lsa,bulk,t256,32,7.5", "gin,proxy,-,4,9", "gin,proxy,c2,4,9.5", "gin,proxy,flat,4,9.6", "gin,proxy,c2/flat,4,9.7"} {
		in += "m,2.28.9,4,1,nvlink,quiet,AllReduce,65536," + tail + "\n"
	}
	table, err := ReadTable(strings.NewReader(in))
	if err != nil {
		t.Fatal(err)
	}
	b := table.Buckets()[0]
	for s, want := range map[string]float64{"lsa/oneshot/4": 5000, "lsa/oneshot/16": 6000, "lsa/twoshot/16": 4000, "lsa/bulk/32": 7000, "lsa/bulk": 8000, "lsa/bulk/32/t256": 7500, "gin/proxy/4": 9000, "gin/proxy/4/c2": 9500, "gin/proxy/4/flat": 9600, "gin/proxy/4/c2/flat": 9700} {
		if ns, ok := table.Cost(b, must(t, s)); !ok || ns != want {
			t.Errorf("%s: %g, %v", s, ns, ok)
		}
	}
	if best, ns, _ := table.Best(b); best != must(t, "lsa/twoshot/16") || ns != 4000 || len(table.Actions(b)) != 11 {
		t.Errorf("best is %s, choices are %v", best, table.Actions(b))
	}
}

func FuzzReadTable(f *testing.F) {
	f.Add(header + "m,2.28.9,4,2,socket,quiet,AllReduce,1024,default,-,-,-,50\nm,2.28.9,4,2,socket,quiet,AllReduce,1024,collective,Ring,LL,1,40\n")
	f.Add(header + "\"m\n\",,1,1,,,AllToAll,1,default,-,-,-,1\n")
	f.Add(header + "m,2.28.9,4,1,nvlink,quiet,AllReduce,1024,default,-,-,-,50\nm,2.28.9,4,1,nvlink,quiet,AllReduce,1024,lsa,twoshot,-,4,5\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, in string) {
		table, err := ReadTable(strings.NewReader(in))
		if err != nil {
			if !errors.Is(err, ErrBadTable) {
				t.Fatalf("%v is not ErrBadTable", err)
			}
			return
		}
		for _, b := range table.Buckets() {
			if _, ns, ok := table.Best(b); !ok || !(ns > 0) || math.IsInf(ns, 0) {
				t.Fatalf("%s: best %f", b, ns)
			}
		}
	})
}
