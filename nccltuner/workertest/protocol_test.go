package workertest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynamiccl/nccltuner"
)

// Whatever comes in, there is an error that says what is wanted, and the next command works.
func TestGarbage(t *testing.T) {
	// Rank 1 of 2 never makes an id: that it says so proves that a line was understood.
	const understood = "id: rank 0 makes it, this is rank 1"
	w := startWorker(t, cleanEnv(), "--rank", "1", "--ranks", "2", "--device", "0")
	const wantsIDs = "id: want the 256 hexadecimal digits that rank 0 gave, once for each communicator, 8 at most"
	long := `{"do":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, c := range []struct{ line, want string }{
		{``, "command: want a JSON object"},
		{`hello`, "command: want a JSON object"},
		{`[]`, "command: want a JSON object"},
		{`{`, "command: want a field name in quotes"},
		{`{}`, "field do: want a text"},
		{`{"do"}`, "command: want : after a field name"},
		{`{"do":}`, "command: want a text, a number, true, false or null after :"},
		{`{"do":id}`, "command: want a text, a number, true, false or null after :"},
		{`{"do":["id"]}`, "command: want a text, a number, true, false or null after :"},
		{`{"do":{"a":1}}`, "command: want a text, a number, true, false or null after :"},
		{`{"do":"id"`, "command: want , or } after a value"},
		{`{"do":"id",}`, "command: want a field name in quotes"},
		{`{"do":"id"}x`, "command: want nothing after }"},
		{`{"do":"id"}{"do":"id"}`, "command: want nothing after }"},
		{`{"do":"id","do":"id"}`, "command: a field comes twice"},
		{`{"do":"i` + "\x00" + `d"}`, "command: want no zero byte"},
		{`{"do":"\u0000"}`, "command: want a text, a number, true, false or null after :"},
		{`{"do":"\ud83d\ude00"}`, "command: want a text, a number, true, false or null after :"},
		{`{"do":"\q"}`, "command: want a text, a number, true, false or null after :"},
		{`{"do":"id\`, "command: want a text, a number, true, false or null after :"},
		{`{"do":1}`, "field do: want a text"},
		{`{"do":true}`, "field do: want a text"},
		{`{"do":"dance"}`, `do "dance": want id, init, call, measure, load, destroy or bye`},
		{`{"do":"é\"\\\n"}`, `do "` + "\u00c3\u00a9" + `"\` + "\n" + `": want id, init, call, measure, load, destroy or bye`},
		{long, `do "` + strings.Repeat("x", 40) + `": want id, init, call, measure, load, destroy or bye`},
		{`{"do":"id","id":"00"}`, "field id: id has none of this name, only do "},
		{`{"do":"call","collective":"AllReduce","bytes":1024}`, "field calls: want a whole number from 1 to 100000"},
		{`{"do":"call","collective":"AllReduce","bytes":"1024","calls":1}`, "field bytes: want a whole number from 1 to 1e+15"},
		{`{"do":"call","collective":"AllReduce","bytes":1024,"calls":1}`, "there is no communicator: send init first"},
		{`{"do":"destroy"}`, "destroy: there is no communicator: send init first"},
		{`{"do":"load","kind":"compute"}`, "load: there is no GPU yet: send init first"},
		{`{"do":"init","id":"00"}`, wantsIDs},
		{`{"do":"init","id":"` + strings.Repeat("g", 256) + `"}`, wantsIDs},
		{`{"do":"init","id":"` + strings.Repeat("0", 384) + `"}`, wantsIDs},
		{`{"do":"init","id":"` + strings.Repeat("0", 9*256) + `"}`, wantsIDs},
		{`{"do":"id"}`, understood},
		{` { "do" : "id" } ` + "\r", understood},
		{`{"\u0064o":"\u0069\u0064"}`, understood},
	} {
		if r := w.ask(c.line); r.Error != c.want {
			t.Errorf("%.80s: %q, want %q", c.line, r.Error, c.want)
		}
	}
	numbers := map[string]bool{"1024": true, "1.024e3": true, "10240E-1": true, "1024.0": true, "01024": false, "+1024": false, "0x400": false,
		"1024.": false, ".1": false, "1e": false, "inf": false, "NaN": false, "-": false, "1_024": false}
	for number, good := range numbers {
		r := w.ask(`{"do":"call","collective":"AllReduce","calls":1,"bytes":` + number + `}`)
		if (r.Error == "there is no communicator: send init first") != good {
			t.Errorf("number %s: %q", number, r.Error)
		}
	}
}

// What can be asked for is bounded by the buffers, the ranks and the protocol; nothing of that harms the communicator.
func TestRefusals(t *testing.T) {
	g := startGroup(t, 2, sameEnv("FAKEGPU_TABLE="+writeTable(t, 2, 1)))
	g.init()
	for _, c := range []struct{ line, want string }{
		{callLine("AllToSome", 1024, 1), `collective "AllToSome": want AllReduce, AllGather, ReduceScatter, Broadcast, Reduce or AllToAll`},
		{callLine("AllReduce", 8<<20+2, 1), "bytes 8388610: the buffers have 8388608: start the worker with a larger --max-bytes"},
		{callLine("AllReduce", 1, 1), "bytes 1: too few for AllReduce of 2 ranks: want 2 or more"},
		{callLine("AllGather", 31, 1), "bytes 31: too few for AllGather of 2 ranks: want 16 or more a rank"},
		{callLine("AllReduce", 1024, 0), "field calls: want a whole number from 1 to 100000"},
		{measureLine("AllReduce", 1024, "trance", 1, 1, 1, 0, 0), `mode "trance": want graph, stream, free or host`},
		{measureLine("AllReduce", 1024, "graph", 1, 3, 4, 0, 0), "field min_replays: want a whole number from 1 to 3"},
		{measureLine("AllReduce", 1024, "graph", 1, 10001, 4, 0, 0), "field replays: want a whole number from 1 to 10000"},
		{measureLine("AllReduce", 1024, "graph", 1, 3, 3, -1, 0), "field warm_us: want a number from 0 to 1000000000"},
		{strings.Replace(inNCCLMemory("AllReduce", 1024, "graph"), `"nccl"`, `"own"`, 1), `memory "own": want nccl, or no field`},
		{strings.Replace(inNCCLMemory("AllReduce", 1024, "graph"), `"nccl"`, `1`, 1), "field memory: want a text"},
		{fmt.Sprintf(`{"do":"init","id":"%s"}`, strings.Repeat("0", 256)), `init: there is a communicator already: send {"do":"destroy"} first`},
	} {
		for rank, w := range g {
			if r := w.ask(c.line); r.Error != c.want {
				t.Errorf("rank %d, %s: %q, want %q", rank, c.line, r.Error, c.want)
			}
		}
	}
	allRight(t, "afterwards", g.ask(callLine("AllReduce", 1024, 2)))
	g.bye()
}

// The largest size is whatever was asked for: of three ranks' shares of a power of two it is no multiple of anything round.
func TestLargestSize(t *testing.T) {
	for _, largest := range []int{5000, 65568} {
		g := startGroup(t, 3, sameEnv("FAKEGPU_TABLE="+writeTable(t, 3, 1)), "--max-bytes", fmt.Sprint(largest))
		g.init()
		for _, collective := range []string{"AllReduce", "AllGather"} {
			allRight(t, fmt.Sprintf("%s of %d bytes", collective, largest), g.ask(callLine(collective, largest, 2)))
		}
		if r := g[0].ask(callLine("AllReduce", largest+64, 1)); !strings.Contains(r.Error, "start the worker with a larger --max-bytes") {
			t.Errorf("more than %d: %q", largest, r.Error)
		}
		g.bye()
	}
}

// Nodes that NCCL_HOSTID makes are nodes to the plugin; a communicator can follow another, each with a record of its own.
func TestNodesAndCommunicators(t *testing.T) {
	env, dir := pluginEnv(t)
	table := writeTable(t, 4, 2)
	g := startGroup(t, 4, func(rank int) []string {
		return append(slices.Clone(env), "FAKEGPU_TABLE="+table, fmt.Sprintf("NCCL_HOSTID=node%d", rank/2))
	})
	var hashes []string
	for range 3 {
		hash := g.init()[0].CommHash
		allRight(t, "call", g.ask(callLine("AllReduce", 65536, 20)))
		names, err := filepath.Glob(filepath.Join(dir, "comm-*.shm"))
		if err != nil || len(names) != 1 || filepath.Base(names[0]) != "comm-"+hash+".shm" || slices.Contains(hashes, hash) {
			t.Errorf("records %v, %v; init said %s after %v", names, err, hash, hashes)
		}
		hashes = append(hashes, hash)
		d, err := nccltuner.OpenDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var c nccltuner.Changes
		s := nccltuner.NewScanner(d)
		if err := s.Scan(&c); err != nil || len(c.Records) != 1 {
			t.Fatalf("%v, %d records", err, len(c.Records))
		}
		if info := c.Records[0].Info(); info.NRanks != 4 || info.NNodes != 2 {
			t.Errorf("record: %+v, want 4 ranks on 2 nodes", info)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		g.ask(`{"do":"destroy"}`)
	}
	g.bye()
}

// Libraries that are missing, damaged or too old: the error names the file and the remedy, and the worker ends with 1.
func TestLibraries(t *testing.T) {
	broken, empty := t.TempDir(), t.TempDir()
	for _, name := range []string{"libcuda.so.1", "libnccl.so.2"} {
		write(t, filepath.Join(broken, name), "not a library\n")
		source := filepath.Join(t.TempDir(), "empty.c")
		write(t, source, "int dynamicclEmpty;\n")
		if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", filepath.Join(empty, name), source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	id, init := `{"do":"id"}`, fmt.Sprintf(`{"do":"init","id":"%s"}`, strings.Repeat("0", 256))
	for _, c := range []struct {
		path, line string
		args       []string
		want       []string
	}{
		{broken, id, nil, []string{"loading NCCL: ", "libnccl.so.2", "--nccl", "install NCCL"}},
		{broken, init, nil, []string{"loading CUDA's driver: ", "libcuda.so.1", "install NVIDIA's driver"}},
		{empty, id, nil, []string{"loading NCCL: libnccl.so.2 has no ncclGetVersion: name another library with --nccl-lib"}},
		{empty, init, nil, []string{"loading CUDA's driver: libcuda.so.1 has no cuInit: a driver for CUDA 12.0 or newer is needed"}},
		{build, id, []string{"--nccl", "/nowhere/libnccl.so.2"}, []string{"/nowhere/libnccl.so.2", "No such file", "--nccl"}},
	} {
		args := append([]string{"--rank", "0", "--ranks", "2", "--device", "0"}, c.args...)
		w := startWorker(t, cleanEnv("LD_LIBRARY_PATH="+c.path), args...)
		r := w.ask(c.line)
		for _, part := range c.want {
			if !strings.Contains(r.Error, part) {
				t.Errorf("%s: %q does not say %q", c.line, r.Error, part)
			}
		}
		if code := w.wait(); code != 1 {
			t.Errorf("%s: exit code %d", c.line, code)
		}
	}
}

// Ranks of pretended nodes share GPUs where a node's ranks have enough, those of one node do not.
func TestSharedGPU(t *testing.T) {
	for _, c := range []struct {
		perNode, more string
		shares        bool
	}{{"2", "", true}, {"0", "", false}, {"4", "", false}, {"0", "NCCL_MULTI_RANK_GPU_ENABLE=1", true}, {"4", "NCCL_MULTI_RANK_GPU_ENABLE=0", false}} {
		w := startWorker(t, cleanEnv("FAKEGPU_GPUS=2", c.more, "FAKEGPU_TABLE="+writeTable(t, 1, 1)), "--rank", "0", "--ranks", "1", "--device", "3", "--per-node", c.perNode)
		id := w.ask(`{"do":"id"}`).ID
		r := w.ask(fmt.Sprintf(`{"do":"init","id":"%s"}`, id))
		// With a GPU it comes as far as the stand-in for NCCL, which has no communicator of one rank.
		if shares := strings.Contains(r.Error, "ncclCommInitRank"); shares != c.shares || !shares && !strings.Contains(r.Error, "--device 3: 2 GPUs are visible") {
			t.Errorf("%+v: %q", c, r.Error)
		}
	}
}

// GPUs that are not there.
func TestNoGPU(t *testing.T) {
	init := fmt.Sprintf(`{"do":"init","id":"%s"}`, strings.Repeat("0", 256))
	for gpus, want := range map[string]string{
		"0": "cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected: no GPU is visible: look at nvidia-smi and CUDA_VISIBLE_DEVICES",
		"3": "--device 3: 3 GPUs are visible, counted from 0: look at CUDA_VISIBLE_DEVICES",
	} {
		w := startWorker(t, cleanEnv("FAKEGPU_GPUS="+gpus, "FAKEGPU_TABLE="+writeTable(t, 2, 1)), "--rank", "0", "--ranks", "2", "--device", "3")
		if r := w.ask(init); r.Error != want || w.wait() != 1 {
			t.Errorf("%s GPUs: %q, want %q", gpus, r.Error, want)
		}
	}
}
