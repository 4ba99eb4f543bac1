package sweep

import (
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// device is no algorithm: LL is one device kernel.
var device = []string{"device"}

// marksOf gives the marks under which these algorithms and protocols are allowed.
func marksOf(t *testing.T, names ...string) (marks uint32) {
	t.Helper()
	for _, name := range names {
		if name == device[0] {
			marks |= uint32(tuner.MarkDeviceLL)
			continue
		}
		a, err := actions.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		marks |= uint32(tuner.MarkOf(a))
	}
	return marks
}

func TestChoices(t *testing.T) {
	kernels := []string{"Ring/LL", "lsa/oneshot", "lsa/twoshot", "lsa/bulk"}
	gin := []string{"Ring/LL", "lsa/oneshot", "gin/proxy"}
	shared := []string{"Ring/LL", "gin/proxy/8/c1"}
	bucket := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 14}
	all := []string{"Tree/LL", "Ring/LL", "Ring/LL128", "NVLS/Simple", "PAT/Simple"}
	for _, c := range []struct {
		name     string
		marks    []string
		most     int
		patterns []string
		channels []uint8
		want     string
	}{
		{"nothing allowed", nil, 0, nil, nil, ""},
		{"as learners", []string{"Ring/LL"}, 0, nil, nil, "Ring/LL/1 Ring/LL/2 Ring/LL/4 Ring/LL/8 Ring/LL/16 Ring/LL/24 Ring/LL/32"},
		{"few channels", []string{"Ring/LL", "PAT/Simple"}, 2, nil, nil, "Ring/LL/1 Ring/LL/2 PAT/Simple/1 PAT/Simple/2"},
		{"everything at given channels", all, 0, nil, []uint8{3, 1}, "Tree/LL/1 Tree/LL/3 Ring/LL/1 Ring/LL/3 Ring/LL128/1 Ring/LL128/3 NVLS/Simple PAT/Simple/1 PAT/Simple/3"},
		{"a protocol", all, 0, []string{"ring/ll128/*"}, []uint8{4}, "Ring/LL128/4"},
		{"any protocol at 8", all, 0, []string{"ring/*/8"}, nil, "Ring/LL/8 Ring/LL128/8"},
		{"a number that nobody tries", all, 0, []string{"Tree/LL/12"}, nil, "Tree/LL/12"},
		{"two patterns", all, 0, []string{"tree/ll/12", "nvls"}, nil, "Tree/LL/12 NVLS/Simple"},
		{"not allowed", []string{"Ring/LL"}, 0, []string{"tree"}, nil, ""},
		{"the default alone", all, 0, []string{"default"}, nil, ""},
		{"one device kernel for LL", append(device, all...), 0, nil, []uint8{3}, "Ring/LL Ring/LL128/3 NVLS/Simple PAT/Simple/3"},
		{"as learners, on a device kernel", append(device, "Ring/LL", "Tree/LL", "Tree/Simple"), 1, nil, nil, "Tree/Simple/1 Ring/LL"},
		{"a ring's, on a device kernel", append(device, all...), 0, []string{"ring"}, []uint8{3}, "Ring/LL Ring/LL128/3"},
		{"others by name", append(device, all...), 0, []string{"ring/ll", "ring/ll/12", "tree/ll"}, []uint8{3}, "Tree/LL Ring/LL Ring/LL/12"},
		{"others alone", append(device, all...), 0, []string{"tree/ll/2"}, nil, "Tree/LL/2"},
		{"our kernels", kernels, 0, nil, []uint8{3}, "Ring/LL/3 lsa/oneshot/1 lsa/oneshot/4 lsa/oneshot/16 lsa/twoshot/1 lsa/twoshot/4 lsa/twoshot/16"},
		{"our kernels alone", kernels, 0, []string{"lsa"}, nil, "lsa/oneshot/1 lsa/oneshot/4 lsa/oneshot/16 lsa/twoshot/1 lsa/twoshot/4 lsa/twoshot/16"},
		{"one of them", kernels, 0, []string{"LSA/one_shot"}, nil, "lsa/oneshot/1 lsa/oneshot/4 lsa/oneshot/16"},
		{"one that is not there", []string{"Ring/LL", "lsa/oneshot"}, 0, []string{"lsa/bulk", "ring"}, []uint8{2}, "Ring/LL/2"},
		{"any of them at 16", kernels, 0, []string{"lsa/*/16"}, nil, "lsa/oneshot/16 lsa/twoshot/16"},
		{"CTAs that nobody tries", kernels, 0, []string{"lsa/oneshot/2", "lsa/twoshot/64"}, nil, "lsa/oneshot/2 lsa/twoshot/64"},
		{"threads that somebody names", kernels, 0, []string{"lsa/oneshot/16/t256", "lsa/*/4/*"}, nil, "lsa/oneshot/4 lsa/oneshot/4/t256 lsa/oneshot/16/t256 lsa/twoshot/4"},
		{"threads and CTAs that nobody tries", kernels, 0, []string{"lsa/twoshot/2/t128"}, nil, "lsa/twoshot/2/t128"},
		{"GIN alone", gin, 0, []string{"gin"}, nil, "gin/proxy/1 gin/proxy/2 gin/proxy/4 gin/proxy/8"},
		{"GIN beside others", gin, 0, []string{"GIN/Proxy/2", "lsa/*/4", "gin/*/1"}, nil, "lsa/oneshot/4 gin/proxy/1 gin/proxy/2"},
		{"GIN that is not there", gin, 0, []string{"gin/gdaki"}, nil, ""},
		{"contexts of GIN that are not there", gin, 0, []string{"gin/*/4/c2", "gin/*/8/c1"}, nil, ""},
		{"CTAs that share contexts", shared, 0, []string{"gin/*/8"}, nil, "gin/proxy/8 gin/proxy/8/c1"},
		{"CTAs that share one context", shared, 0, []string{"gin/*/*/c1"}, nil, "gin/proxy/1/c1 gin/proxy/2/c1 gin/proxy/4/c1 gin/proxy/8/c1"},
		{"contexts that nobody tries", shared, 0, []string{"gin/*/8/c2", "gin/proxy/5/c3", "ring/ll/8"}, nil, "Ring/LL/8 gin/proxy/5/c3 gin/proxy/8/c2"},
		{"flat alone, where nothing is hierarchical", shared, 0, []string{"gin/*/8/flat"}, nil, ""},
		{"any contexts", shared, 0, []string{"gin/*/4/*", "gin/*/4/c4"}, nil, "gin/proxy/4 gin/proxy/4/c1 gin/proxy/4/c4"},
		{"CTAs of GIN that nobody tries", gin, 0, []string{"gin/proxy/3"}, nil, "gin/proxy/3"},
		{"everything at 16", kernels, 0, []string{"*/*/16"}, nil, "Ring/LL/16 lsa/oneshot/16 lsa/twoshot/16"},
		{"more than CTAs can be", kernels, 0, []string{"*/*/200"}, nil, "Ring/LL/200"},
		{"a protocol is NCCL's", kernels, 0, []string{"*/ll"}, []uint8{2}, "Ring/LL/2"},
		{"an algorithm is NCCL's", append(kernels, "Tree/LL"), 0, []string{"tree"}, []uint8{2}, "Tree/LL/2"},
		{"the default alone, with kernels", kernels, 0, []string{"default"}, nil, ""},
		{"any protocol at 8, on a device kernel", append(device, all...), 0, []string{"ring/*/8"}, nil, "Ring/LL/8 Ring/LL128/8"},
	} {
		var patterns []Pattern
		for _, text := range c.patterns {
			p, err := ParsePattern(text)
			if err != nil {
				t.Fatal(err)
			}
			patterns = append(patterns, p)
		}
		var got []string
		for _, a := range choices(bucket, marksOf(t, c.marks...), c.most, state.Shape{Ranks: 2, Nodes: 2}, patterns, c.channels) {
			got = append(got, a.String())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
	for _, text := range []string{"", "ring/ll/0", "ring/ll/256", "ring/ll/8/1", "ringo", "ring/ll64", "ring//8", "lsa/ll", "lsa/16", "lsa/oneshot/129", "lsa/oneshot/0", "lsa/oneshot/16/1", "oneshot", "*/oneshot", "lsa//8", "gin/ll", "gin/4", "gin/proxy/0", "gin/proxy/4/1", "gin/proxy/4/c0", "gin/proxy/4/c5", "gin/proxy/4/c1/1", "gin/proxy/c1", "ring/ll/8/c1", "lsa/bulk/8/c1", "lsa/bulk/8/t0", "lsa/bulk/8/t100", "lsa/bulk/8/t1024", "lsa/bulk/8/t256/1", "ring/ll/8/t256", "gin/oneshot"} {
		if p, err := ParsePattern(text); err == nil {
			t.Errorf("%q was read as %v", text, p)
		}
	}
}

func TestOrder(t *testing.T) {
	forced := []actions.Action{{Path: 1, Channels: 1}, {Path: 1, Channels: 2}, {Path: 1, Channels: 3}}
	for n := range 4 {
		got := order(forced[:n])
		var rest []actions.Action
		defaults := 0
		for _, a := range got {
			if a == actions.Default {
				defaults++
			} else {
				rest = append(rest, a)
			}
		}
		if !slices.Equal(rest, forced[:n]) || got[0] != actions.Default || got[len(got)-1] != actions.Default || defaults != []int{1, 2, 3, 3}[n] {
			t.Errorf("%d choices: %v", n, got)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		low, high, factor uint64
		want              []uint64
	}{{1024, 1024, 4, []uint64{1024}}, {1, 100, 10, []uint64{1, 10, 100}}, {1024, 65535, 4, []uint64{1024, 4096, 16384}}, {1, 1 << 36, 1 << 36, []uint64{1, 1 << 36}}} {
		if got, err := Sizes(c.low, c.high, c.factor); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%d to %d by %d: %v, %v", c.low, c.high, c.factor, got, err)
		}
	}
	for _, bad := range [][3]uint64{{0, 1, 2}, {2, 1, 2}, {1, 2, 1}, {1, 1 << 37, 2}} {
		if got, err := Sizes(bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("%v: %v", bad, got)
		}
	}
}

func TestNames(t *testing.T) {
	for gpu, want := range map[string]string{"NVIDIA H200": "H200", "NVIDIA GeForce RTX 4090": "RTX-4090", "NVIDIA A100-SXM4-80GB": "A100-SXM4-80GB",
		"Tesla V100": "V100", "": "GPU", "no GPU, stand-in": "no-GPU-stand-in"} {
		if got := model(gpu); got != want {
			t.Errorf("%q: %s, want %s", gpu, got, want)
		}
	}
	gpus := []GPU{{Name: "NVIDIA H200"}}
	shared := []GPU{{"NVIDIA H200", "a", ""}, {"NVIDIA H200", "b", ""}, {"NVIDIA H200", "a", ""}, {"NVIDIA H200", "b", ""}}
	if id := (Identity{GPUs: shared, Ranks: 4}); !strings.HasPrefix(id.Shared(), "4 ranks share 2 GPUs") {
		t.Errorf("shared: %q", id.Shared())
	}
	if id := (Identity{GPUs: shared[:2], Ranks: 2}); id.Shared() != "" {
		t.Errorf("not shared: %q", id.Shared())
	}
	for _, c := range []struct {
		id   Identity
		want string
	}{
		{Identity{GPUs: gpus, Ranks: 4, Nodes: 1, Transport: "nvlink", Condition: "quiet"}, "h200x4-nvlink-quiet.csv"},
		{Identity{GPUs: gpus, Ranks: 4, Nodes: 2, Transport: "socket", Condition: "cpu-load"}, "h200x4-socket-2nodes-cpu-load.csv"},
		{Identity{GPUs: shared, Ranks: 4, Nodes: 2, Transport: "socket", Condition: "quiet"}, "h200x2-4ranks-socket-2nodes-quiet.csv"},
	} {
		if got := tableName(&c.id); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	for _, c := range []struct {
		load, calls string
		want        string
	}{{LoadNone, workers.Graph, "quiet"}, {LoadCopy, workers.Graph, "network-load"}, {LoadNetwork, workers.Graph, "network-load"},
		{LoadNone, workers.Stream, "stream-calls"}, {LoadCPU, workers.Stream, "cpu-load-stream-calls"}} {
		o := Options{Load: c.load, Calls: c.calls}
		o.complete()
		if got := o.Condition; got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestCheck(t *testing.T) {
	good := func() Options {
		return Options{Ranks: 4, Nodes: 1, Collectives: []string{"AllGather"}, Sizes: []uint64{1024}, Calls: workers.Graph, Load: LoadNone,
			Rounds: 1, Budget: time.Millisecond, Timeout: time.Second}
	}
	if o := good(); o.Check() != nil {
		t.Fatal(o.Check())
	}
	for says, change := range map[string]func(*Options){
		"want 1 to 64":           func(o *Options) { o.Ranks = 65 },
		"every node":             func(o *Options) { o.Nodes = 3 },
		"no sizes":               func(o *Options) { o.Sizes = nil },
		"begin at 128":           func(o *Options) { o.Sizes = []uint64{64} },
		"no collectives":         func(o *Options) { o.Collectives = nil },
		"--sizes 0":              func(o *Options) { o.Sizes, o.Collectives = []uint64{0, 8}, []string{"AllReduce"} },
		"--sizes 1":              func(o *Options) { o.Sizes, o.Collectives = []uint64{1, 8}, []string{"AllReduce"} },
		"--load-size -1":         func(o *Options) { o.LoadSize = -1 },
		"--load-size 1000000":    func(o *Options) { o.LoadSize = 1_000_000 },
		"want at most":           func(o *Options) { o.Sizes = []uint64{1 << 40} },
		`--calls "eager"`:        func(o *Options) { o.Calls = "eager" },
		"add --calls stream":     func(o *Options) { o.Samples = "s.csv" },
		"is a file of --out":     func(o *Options) { o.Samples, o.Calls, o.Out = "./s.csv", workers.Stream, "s.csv" },
		"name another one":       func(o *Options) { o.Samples, o.Calls, o.Out = "s.json", workers.Stream, "s.csv" },
		`--load "rain"`:          func(o *Options) { o.Load = "rain" },
		"--rounds 0":             func(o *Options) { o.Rounds = 0 },
		"budget":                 func(o *Options) { o.Budget = 0 },
		"timeout":                func(o *Options) { o.Timeout = time.Millisecond },
		`--collectives "Gather"`: func(o *Options) { o.Collectives = []string{"Gather"} },
	} {
		o := good()
		change(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}
