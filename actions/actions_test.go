package actions

import (
	"errors"
	"flag"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestMain lets TEST_SEED replay rapid's tests.
func TestMain(m *testing.M) {
	if seed := os.Getenv("TEST_SEED"); seed != "" {
		if err := flag.Set("rapid.seed", seed); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// anyAction draws actions in the form that words and strings keep: what a path gives no meaning to is zero.
func anyAction() *rapid.Generator[Action] {
	return rapid.Custom(func(t *rapid.T) Action {
		switch Path(rapid.IntRange(0, NumPaths-1).Draw(t, "path")) {
		case PathDefault:
			return Default
		case PathSymmetric:
			return Action{Path: PathSymmetric, Symmetric: Symmetric(rapid.IntRange(0, NumSymmetric-1).Draw(t, "symmetric kernel"))}
		case PathLSA:
			return Action{
				Path:     PathLSA,
				Kernel:   Kernel(rapid.IntRange(0, NumKernels-1).Draw(t, "kernel")),
				Channels: rapid.Uint8Max(MaxCTAs).Draw(t, "CTAs"),
				Warps:    rapid.Uint8Max(CTAThreads/WarpThreads).Draw(t, "warps"),
			}
		case PathGIN:
			return Action{Path: PathGIN, Backend: Backend(rapid.IntRange(0, NumBackends-1).Draw(t, "backend")), Channels: rapid.Uint8().Draw(t, "CTAs"),
				Contexts: rapid.Uint8Max(MaxContexts).Draw(t, "contexts"), Warps: rapid.Uint8().Draw(t, "warps")}
		}
		return Action{
			Path:      PathCollective,
			Algorithm: Algorithm(rapid.IntRange(0, NumAlgorithms-1).Draw(t, "algorithm")),
			Protocol:  Protocol(rapid.IntRange(0, NumProtocols-1).Draw(t, "protocol")),
			Channels:  rapid.Uint8().Draw(t, "channels"),
			Warps:     rapid.Uint8().Draw(t, "warps"),
		}
	})
}

func TestWordAndStringRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyAction().Draw(t, "action")
		if back, err := FromWord(a.Word()); err != nil || back != a {
			t.Fatalf("%v -> %#x -> %v, %v", a, a.Word(), back, err)
		}
		if back, err := Parse(a.String()); err != nil || back != a {
			t.Fatalf("%#v -> %q -> %#v, %v", a, a.String(), back, err)
		}
	})
}

// The words are shared with C: these values must not move.
func TestWordLayout(t *testing.T) {
	for _, c := range []struct {
		action Action
		word   uint32
	}{
		{Default, 0},
		{Action{Path: PathCollective, Algorithm: Tree, Protocol: LL, Channels: 0}, 0x000001},
		{Action{Path: PathCollective, Algorithm: Ring, Protocol: LL128, Channels: 24}, 0x180111},
		{Action{Path: PathCollective, Algorithm: PAT, Protocol: Simple, Channels: 255}, 0xff0261},
		{Action{Path: PathSymmetric}, 0x000002},
		{Action{Path: PathSymmetric, Symmetric: SymmetricLL}, 0x000012},
		{Action{Path: PathSymmetric, Symmetric: SymmetricRSxTmaLD}, 0x0000e2},
		{Action{Path: PathCollective, Algorithm: Ring, Protocol: LL, Channels: 8, Warps: 16}, 0x10080011},
		{Action{Path: PathLSA, Channels: 16, Warps: 16}, 0x10100003},
		{Action{Path: PathLSA, Kernel: TwoShot, Channels: 64}, 0x00400013},
		{Action{Path: PathLSA, Kernel: Bulk, Channels: 32, Warps: 8}, 0x08200023},
		{Action{Path: PathGIN, Channels: 4, Backend: BackendProxy}, 0x00042004},
		{Action{Path: PathGIN, Channels: 8, Backend: BackendGDAKI, Contexts: 2}, 0x00081204}, // in the protocol's place
		{Action{Path: PathDefault, Algorithm: Ring, Channels: 3}, 0},                         // the default has no parts
	} {
		if got := c.action.Word(); got != c.word {
			t.Errorf("%v: word %#x, want %#x", c.action, got, c.word)
		}
	}
}

func TestFromWordRejects(t *testing.T) {
	for _, w := range []uint32{
		0x000005,   // path
		0x00000f,   // path
		0x000070,   // parts without a path
		0x180110,   // parts without a path
		0x000071,   // algorithm 7
		0x000301,   // protocol 3
		0x001001,   // a backend without GIN
		0x003004,   // backend 3
		0x000014,   // an algorithm without a collective
		0x01000002, // threads of a path that has none
		0x100043,   // kernel 4
		0x100103,   // a protocol of path lsa
		0x082504,   // 5 contexts
		0x810013,   // 129 CTAs
		0x11100013, // 544 threads
		0xffffffff,
	} {
		if a, err := FromWord(w); !errors.Is(err, ErrUnknownName) || a != Default {
			t.Errorf("word %#x: %v, %v; want ErrUnknownName", w, a, err)
		}
	}
}

func TestParseRejects(t *testing.T) {
	for _, s := range []string{"", "Default", "ring", "Ring/", "/LL", "Ring/LL/", "Ring/LL/0", "Ring/LL/256", "Ring/LL/-1",
		"Ring/LL/1/1", "Ringo/LL", "Ring/LL64", "symmetric/1", "lsa", "lsa/16", "lsa/proxy", "lsa/none", "lsa/oneshot/LL", "lsa/oneshot/0", "lsa/oneshot/129", "lsa/bulk/t544", "lsa/t256",
		"lsa/bulk/t256/4", "oneshot", "oneshot/4", "LSA/oneshot", "gin/oneshot", "symmetric/oneshot", "gin/none", "gin/t33", "gin/t0", "gin/proxy/8/c0", "gin/proxy/8/c5", "gin/proxy/8/c2/c2", "gin/proxy/c2/8", "gin/proxy/8/t64/c2", "gin/proxy/8/c", "lsa/bulk/8/c2", "Ring/LL/8/c2", "gin/proxy/8/tc2", "gin/proxy/flat/8", "gin/proxy/8/flat/flat", "gin/proxy/8/flat/c2", "lsa/bulk/8/flat", "Ring/LL/flat", "flat", "gin/proxy/8/t64/t64", "Ring/LL/t32/t32", "Ring/LL/t32/8", "default/t32", "collective", "NaN", "Ring/LL/ 1"} {
		if a, err := Parse(s); err == nil {
			t.Errorf("%q: read as %v", s, a)
		}
	}
}

func TestNamesAreNCCLs(t *testing.T) {
	for _, c := range []struct {
		text string
		want Algorithm
	}{{"RING", Ring}, {"collnet_direct", CollnetDirect}, {"COLLNETCHAIN", CollnetChain}, {"nvls_tree", NVLSTree}} {
		if a, err := ParseAlgorithm(c.text); err != nil || a != c.want {
			t.Errorf("%q: %v, %v", c.text, a, err)
		}
	}
	if c, err := ParseCollective("all_reduce"); err != nil || c != AllReduce {
		t.Errorf("all_reduce: %v, %v", c, err)
	}
	if _, err := ParseProtocol("LL256"); !errors.Is(err, ErrUnknownName) || !strings.Contains(err.Error(), "LL128") {
		t.Errorf("unknown protocol: %v; want the known names in it", err)
	}
	if a, err := Parse("lsa/Two_Shot/8"); err != nil || a != (Action{Path: PathLSA, Kernel: TwoShot, Channels: 8}) {
		t.Errorf("lsa/Two_Shot/8: %v, %v", a, err)
	}
	if _, err := Parse("lsa/16"); !errors.Is(err, ErrUnknownName) || !strings.Contains(err.Error(), "twoshot") {
		t.Errorf("a number in the kernel's place: %v; want the kernels' names in it", err)
	}
	if p, err := ParsePath("symmetric"); err != nil || p != PathSymmetric {
		t.Errorf("symmetric: %v, %v", p, err)
	}
	// A newer NCCL may send numbers that we have no name for; they must print, not panic.
	for _, s := range []string{Collective(99).String(), Algorithm(9).String(), Protocol(9).String(), Path(9).String(), Kernel(9).String()} {
		if !strings.Contains(s, "9") {
			t.Errorf("unknown number printed as %q", s)
		}
	}
}

// The package is the leaf of the import ladder, so it cannot import the constant: it must not drift from it.
func TestBucketsOfTheABI(t *testing.T) {
	header, err := os.ReadFile("../nccltuner/abi.h")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`#define DYN_NUM_BUCKETS (\d+)`).FindSubmatch(header)
	if m == nil || string(m[1]) != strconv.Itoa(NumSizeBuckets) {
		t.Fatalf("DYN_NUM_BUCKETS in abi.h is %q, NumSizeBuckets is %d", m, NumSizeBuckets)
	}
}

// Nor from what our kernels are compiled for, and from the border with C.
func TestKernelsOfTheABI(t *testing.T) {
	for file, want := range map[string]map[string]int{
		"../kernels/gin/gin.h":     {"DYN_GIN_MAX_CONTEXTS": MaxContexts},
		"../kernels/device/call.h": {"DYN_KERNEL_MAX_BLOCKS": MaxCTAs, "DYN_KERNEL_THREADS": CTAThreads},
		"../nccltuner/abi.h": {"DYN_KERNEL_ONE_SHOT": int(OneShot), "DYN_KERNEL_TWO_SHOT": int(TwoShot), "DYN_KERNEL_BULK": int(Bulk), "DYN_KERNEL_DIRECT": int(Direct),
			"DYN_NUM_KERNELS": NumKernels, "DYN_PATH_LSA": int(PathLSA),
			"DYN_PATH_GIN": int(PathGIN), "DYN_BACKEND_GDAKI": int(BackendGDAKI), "DYN_BACKEND_PROXY": int(BackendProxy)},
	} {
		header, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range want {
			m := regexp.MustCompile(`#define ` + name + ` (\d+)`).FindSubmatch(header)
			if m == nil || string(m[1]) != strconv.Itoa(value) {
				t.Errorf("%s in %s is %q, here it is %d", name, file, m, value)
			}
		}
	}
}

// What differs in numbers alone is of one kind, and nothing else is.
func TestKind(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyAction().Draw(t, "a"), anyAction().Draw(t, "b")
		same := a.Path == b.Path && a.Algorithm == b.Algorithm && a.Protocol == b.Protocol && a.Kernel == b.Kernel && a.Backend == b.Backend && a.Symmetric == b.Symmetric && a.Contexts == b.Contexts
		if (a.Kind() == b.Kind()) != same || a.Kind().Check() != nil {
			t.Fatalf("%v is of kind %v, %v of %v", a, a.Kind(), b, b.Kind())
		}
	})
}

func FuzzParseAction(f *testing.F) {
	for _, s := range []string{"default", "symmetric", "Ring/LL128/24", "nvls_tree/simple", "Ring/LL/300", "lsa/twoshot/16", "lsa/bulk/32/t256", "lsa/oneshot", "gin/proxy/4", "gin/gdaki/8/c2/t64", "gin/flat", "gin/gdaki/4/flat", "gin/proxy/8/c1/flat", "gin/gdaki/8/c2/t64/flat", "symmetric/RSxLD_AGxST"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := Parse(s)
		if err != nil {
			return
		}
		if back, err := Parse(a.String()); err != nil || back != a {
			t.Fatalf("%q -> %#v -> %q -> %#v, %v", s, a, a.String(), back, err)
		}
	})
}

func FuzzFromWord(f *testing.F) {
	for _, w := range []uint32{0, 1, 0x180111, 0xff0261, 0x10100023, 0x810013, 0xffffffff} {
		f.Add(w)
	}
	f.Fuzz(func(t *testing.T, w uint32) {
		a, err := FromWord(w)
		if err == nil && a.Word() != w {
			t.Fatalf("%#x -> %v -> %#x", w, a, a.Word())
		}
		if err != nil && a != Default {
			t.Fatalf("%#x: %v beside an error", w, a)
		}
	})
}

// Collectives on registered memory are others to all that is learned, and the same to NCCL and to numerics.
func TestCollectivesOnRegisteredMemory(t *testing.T) {
	on := 0
	for c := range Collective(NumCollectives) {
		other, ok := c.OnRegistered()
		if c.Registered() {
			on++
			if ok || c.Plain() == c || c.String() != c.Plain().String()+"Registered" || ReductionOrderMatters(c) != ReductionOrderMatters(c.Plain()) {
				t.Errorf("%s", c)
			}
		} else if c.Plain() != c || ok != (c >= AllGather) || ok && other.Plain() != c {
			t.Errorf("%s: %s, %v", c, other, ok)
		}
		if back, err := ParseCollective(c.String()); err != nil || back != c {
			t.Errorf("%s: %v", c, err)
		}
	}
	if on != 4 {
		t.Errorf("%d collectives", on)
	}
	names := map[Collective]int{}
	for s := SymmetricLL; s < NumSymmetric; s++ {
		for c := range Collective(NumAsked) {
			if s.Names(c) {
				names[c]++
			}
		}
		if back, err := ParseSymmetric(s.String()); err != nil || back != s || s.Names(AllReduce) != s.Names(AllReduceRegistered) {
			t.Errorf("%s: %v", s, err)
		}
	}
	if names[AllReduce] != 5 || names[AllGather] != 6 || names[ReduceScatter] != 4 || len(names) != 3 || SymmetricAny.Names(AllGather) {
		t.Errorf("%v", names)
	}
}
