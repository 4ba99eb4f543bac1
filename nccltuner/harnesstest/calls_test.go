package harnesstest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

var oneRank = []string{"--rank", "1", "--window", "0", "--noise", "0", "--skew", "0"}

func with(base []string, more ...string) []string { return append(slices.Clone(base), more...) }

// The order of one call, as src/enqueue.cc and src/group.cc make it; the last column is the thread, 0 the caller's.
func TestOrderOfOneCall(t *testing.T) {
	for version, abi := range map[string][2]int{"2.28.9": {5, 5}, "2.30.7": {6, 6}, "2.32.3": {6, 7}} {
		tuner, profiler := abi[0], abi[1]
		lines := probeRun(t, tuner, profiler, maskAll&^maskProxyStep, "",
			with(oneRank, "--nccl", version, "--table", oneNode.write(t), "--calls", "1", "--max-bytes", "1024")...)
		caller := lines[0].thread
		var order []string
		for _, l := range lines {
			if l.thread != caller {
				continue
			}
			word := l.what
			switch {
			case l.what == "start":
				word += " " + l.f["type"]
			case l.what == "state":
				word += " " + l.f["state"]
			}
			order = append(order, word)
		}
		want := []string{"profiler.init", "tuner.init", "start 256", "state 23", "start 512", "stop", "state 24", "getCollInfo"}
		if version == "2.32.3" { // first a symmetric kernel, then what there is besides, then the question that counts
			want = append(want, "getCollInfo", "getCollInfo")
		}
		if version != "2.28.9" {
			want = append(want, "getChunkSize")
		}
		want = append(want, "start 1", "start 2", "stop", "stop", "stop", "tuner.finalize", "profiler.finalize")
		if !slices.Equal(order, want) {
			t.Errorf("%s: calling thread made\n%s\nwant\n%s", version, strings.Join(order, ", "), strings.Join(want, ", "))
		}
		api, coll := starts(lines, maskCollApi)[0], starts(lines, maskColl)[0]
		if api.f["parent"] != starts(lines, maskGroupApi)[0].f["handle"] || coll.f["parent"] != api.f["handle"] ||
			coll.f["group"] != starts(lines, maskGroup)[0].f["handle"] {
			t.Errorf("%s: wrong parents: %v", version, coll)
		}
		kernels := starts(lines, maskKernelCh)
		if len(kernels) != int(coll.num(t, "channels")) || len(kernels) == 0 {
			t.Errorf("%s: %d KernelCh events for %s channels", version, len(kernels), coll.f["channels"])
		}
		for _, k := range kernels {
			if k.thread == caller || k.f["parent"] != coll.f["handle"] || k.f["rank"] != "0" {
				t.Errorf("%s: KernelCh %v from thread %s", version, k, k.thread)
			}
		}
		if coll.f["rank"] != "1" || coll.f["seq"] != "0" {
			t.Errorf("%s: Coll %v", version, coll)
		}
	}
}

// Names, counts and -1 entries as NCCL has them.
func TestArguments(t *testing.T) {
	lines := probeRun(t, 6, 6, maskColl, "", with(oneRank, "--table", oneNode.write(t), "--calls", "200")...)
	seq := map[string]int64{}
	infos := only(lines, func(l line) bool { return l.what == "getCollInfo" })
	colls := starts(lines, maskColl)
	if len(infos) != 200 || len(colls) != 200 {
		t.Fatalf("%d getCollInfo calls and %d collectives, want 200", len(infos), len(colls))
	}
	funcs := map[string]string{"2": "AllGather", "3": "ReduceScatter", "4": "AllReduce"}
	for i, info := range infos {
		coll := colls[i]
		f := coll.f["func"]
		if f != funcs[info.f["coll"]] || coll.num(t, "seq") != seq[f] {
			t.Fatalf("call %d: %v and %v, want number %d of its function", i, info, coll, seq[f])
		}
		seq[f]++
		bytes, count := info.num(t, "bytes"), coll.num(t, "count")
		ok := map[string]bool{
			"AllReduce":     count*4 == bytes && coll.f["dtype"] == "ncclFloat32",
			"AllGather":     count*8 == bytes && coll.f["dtype"] == "ncclInt8",
			"ReduceScatter": count*4*8 == bytes && coll.f["dtype"] == "ncclFloat32",
		}[f]
		if !ok {
			t.Errorf("call %d: getCollInfo saw %d bytes, the event has %v", i, bytes, coll)
		}
		if !slices.Contains([]string{"TREE", "RING"}, coll.f["algo"]) || !slices.Contains([]string{"LL", "LL128", "SIMPLE"}, coll.f["proto"]) {
			t.Errorf("call %d: names %v", i, coll)
		}
		if info.f["algos"] != "7" || info.f["protos"] != "3" || info.f["channels"] != "0" || info.f["ops"] != "1" {
			t.Errorf("call %d: %v", i, info)
		}
		for e, cost := range strings.Split(info.f["table"], ",") {
			open := e/3 == 1 || (e/3 == 0 && f == "AllReduce")
			if v, err := strconv.ParseFloat(cost, 64); err != nil || (v == -1) == open || (open && v < 1) {
				t.Errorf("call %d: %s entry %d is %s (%v)", i, f, e, cost, err)
			}
		}
	}
}

// regBuff is a matter of one rank: two ranks must see different values, for the same calls.
func TestRegBuffDiffersBetweenRanks(t *testing.T) {
	table := oneNode.write(t)
	var seen [2][]string
	for r := range seen {
		for _, l := range probeRun(t, 6, 6, 0, "", "--rank", strconv.Itoa(r), "--window", "0", "--table", table, "--calls", "100") {
			if l.what == "getCollInfo" {
				seen[r] = append(seen[r], l.f["reg"])
			}
		}
	}
	differ := 0
	for i := range seen[0] {
		if seen[0][i] != seen[1][i] {
			differ++
		}
	}
	if differ < 20 || differ > 80 {
		t.Errorf("regBuff differs in %d of 100 calls, want about 50", differ)
	}
}

// Masks: what is not asked for is not told, but for the parents, which NCCL starts for the sake of their children.
func TestActivationMask(t *testing.T) {
	cases := []struct {
		mask int
		want map[int]int // events of 10 calls by type
	}{
		{0, map[int]int{}},
		{maskGroupApi, map[int]int{maskGroupApi: 10}},
		{maskCollApi, map[int]int{maskGroupApi: 10, maskCollApi: 10}},
		{maskGroup, map[int]int{maskGroupApi: 10, maskGroup: 10}},
		{maskColl, map[int]int{maskGroupApi: 10, maskCollApi: 10, maskGroup: 10, maskColl: 10}},
	}
	table := twoNodes.write(t)
	for _, c := range cases {
		lines := probeRun(t, 6, 6, c.mask, "", with(oneRank, "--table", table, "--calls", "10")...)
		got := map[int]int{}
		for _, l := range lines {
			if l.what == "start" {
				got[int(l.num(t, "type"))]++
			}
		}
		for kind := 1; kind < 1<<15; kind <<= 1 {
			if got[kind] != c.want[kind] {
				t.Errorf("mask %d: %d events of type %d, want %d", c.mask, got[kind], kind, c.want[kind])
			}
		}
	}
}

// launchNs is what a call takes beside its kernel (LAUNCH_NS of the harness's proxy.c): tables hold whole calls.
const launchNs = 4600

// Virtual time: the kernel on the GPU's clock takes what the table says but for the launch, and the sends, on the host's
// clock, too.
func TestEventsCarryTheTablesTimes(t *testing.T) {
	lines := probeRun(t, 6, 6, maskAll, "0,0,8", with(oneRank, "--table", twoNodes.write(t), "--calls", "40", "--max-bytes", "1024",
		"--workload", allReduceOnly(t), "--counter-frac", "0.5")...)
	want := twoNodes.costUs(4<<20, 0, 0, 8) * 1000
	parent := func(l line) string { return l.f["parent"] }
	begin, end, first := map[string]int64{}, map[string]int64{}, map[string]int64{}
	owner, sends, channels := map[string]string{}, map[string]bool{}, map[string]int{}
	sendEnd := map[string]int64{}
	for _, l := range lines {
		switch {
		case l.what == "start" && l.f["type"] == "64":
			owner[l.f["handle"]] = parent(l)
			channels[parent(l)]++
			if at := l.num(t, "timer"); begin[parent(l)] == 0 || at < begin[parent(l)] {
				begin[parent(l)] = at
			}
		case l.what == "state" && l.f["state"] == strconv.Itoa(chStop):
			end[owner[l.f["handle"]]] = max(end[owner[l.f["handle"]]], l.num(t, "timer"))
		case l.what == "start" && l.f["type"] == "8":
			owner[l.f["handle"]] = parent(l)
			sends[l.f["handle"]] = l.f["send"] == "1"
			first[parent(l)] = l.nowNs
		case l.what == "stop" && sends[l.f["handle"]]:
			sendEnd[owner[l.f["handle"]]] = l.nowNs
		}
	}
	if len(begin) != 40 || len(sendEnd) != 40 {
		t.Fatalf("%d collectives with kernels and %d with sends, want 40", len(begin), len(sendEnd))
	}
	for coll := range begin {
		if took := float64(end[coll] - begin[coll]); took < want-launchNs-2 || took > want-launchNs+2 || channels[coll] != 8 {
			t.Errorf("collective %s: kernel of %.0f ns on %d channels, want %.0f on 8", coll, took, channels[coll], want-launchNs)
		}
		if took := float64(sendEnd[coll] - first[coll]); took < want/2-2 || took > want/2+2 {
			t.Errorf("collective %s: sends took %.0f ns, want %.0f", coll, took, want/2)
		}
	}
}

// A group shares one getCollInfo call; its GroupApi event is stopped after the second collective (src/group.cc).
func TestGroup(t *testing.T) {
	lines := probeRun(t, 6, 6, maskColl, "", with(oneRank, "--table", oneNode.write(t), "--calls", "10", "--group", "3")...)
	infos := only(lines, func(l line) bool { return l.what == "getCollInfo" })
	colls := starts(lines, maskColl)
	if len(infos) != 10 || len(colls) != 30 || len(starts(lines, maskGroup)) != 10 || len(starts(lines, maskGroupApi)) != 20 {
		t.Fatalf("%d getCollInfo, %d Coll, %d Group, %d GroupApi; want 10, 30, 10, 20", len(infos), len(colls),
			len(starts(lines, maskGroup)), len(starts(lines, maskGroupApi)))
	}
	for i, info := range infos {
		coll := colls[3*i]
		perByte := map[string]int64{"AllReduce": 4, "AllGather": 8, "ReduceScatter": 32}[coll.f["func"]]
		if info.num(t, "bytes") != 3*perByte*coll.num(t, "count") {
			t.Errorf("group %d: %v for three of %v", i, info, coll)
		}
	}
}

// Every version of both interfaces that an NCCL accepts.
func TestOlderInterfaces(t *testing.T) {
	table := twoNodes.write(t)
	for _, v := range []struct{ tuner, profiler int }{{2, 1}, {3, 2}, {4, 3}, {5, 4}, {5, 5}} {
		lines := probeRun(t, v.tuner, v.profiler, maskAll, "0,2,4", with(oneRank, "--nccl", "2.28.9", "--table", table, "--calls", "20",
			"--workload", allReduceOnly(t))...)
		colls := starts(lines, maskColl)
		if len(colls) != 20 {
			t.Errorf("%+v: %d collectives, want 20", v, len(colls))
			continue
		}
		algo, proto, function := "TREE", "SIMPLE", "AllReduce"
		if v.profiler == 1 {
			algo, proto, function = "0", "2", "4"
		}
		c := colls[0]
		if c.f["algo"] != algo || c.f["proto"] != proto || c.f["func"] != function || c.f["channels"] != "4" {
			t.Errorf("%+v: %v", v, c)
		}
		if kernels := len(starts(lines, maskKernelCh)); (kernels > 0) != (v.profiler >= 3) {
			t.Errorf("%+v: %d KernelCh events", v, kernels)
		}
		if n := len(starts(lines, maskGroupApi)); (n > 0) != (v.profiler >= 5) {
			t.Errorf("%+v: %d GroupApi events", v, n)
		}
		if v.tuner == 2 {
			if l := only(lines, func(l line) bool { return l.what == "v2" })[0]; l.f["collnet"] != "0" || l.f["nvls"] != "0" {
				t.Errorf("tuner v2: %v", l)
			}
		}
		if v.profiler < 5 && starts(lines, maskColl)[0].f["parent"] != starts(lines, maskGroup)[0].f["handle"] {
			t.Errorf("%+v: before v5 a Coll event's parent is its Group: %v", v, c)
		}
	}
}
