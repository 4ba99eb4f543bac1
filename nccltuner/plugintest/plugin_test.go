package plugintest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// build is where the libraries are, and below it what was built on the way: of each directory its test programs.
var build string

func TestMain(m *testing.M) { testbuild.Main(m, &build, "../plugin tests", "../preload tests") }

// pluginTests and preloadTests are the folders of the test programs.
func pluginTests() string  { return filepath.Join(testbuild.Objects(build, "../plugin"), "test") }
func preloadTests() string { return filepath.Join(testbuild.Objects(build, "../preload"), "test") }

func long() bool { v := os.Getenv("DYN_LONG"); return v != "" && v != "0" }

// program runs one C test; it passes by exiting 0 and prints JSON lines.
func program(t *testing.T, name string, args ...string) {
	t.Helper()
	shared := t.TempDir()
	if dir, err := os.MkdirTemp("/dev/shm", "dynamiccl-plugintest"); err == nil { // a tmpfs, as /run is
		shared = dir
		t.Cleanup(func() { os.RemoveAll(dir) })
	}
	if err := os.Chmod(shared, 0o755); err != nil { // a rank of another user must get as far as the directory in it
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	cmd := testbuild.Command(ctx, filepath.Join(pluginTests(), name), args...)
	cmd.Dir = "../plugin" // some name files of their own sources
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool {
		return strings.HasPrefix(e, "NCCL_") || strings.HasPrefix(e, "DYNAMICCL_")
	}), "TEST_DIR="+shared)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	t.Logf("%s %s\n%s", name, strings.Join(args, " "), out.Bytes())
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// Every interleaving of small worlds with the shipped steps. The log of two entries wraps, so the room rule is at work;
// the reuse worlds give the publisher fewer buffers than publications.
func TestEpochExhaustive(t *testing.T) {
	program(t, "epoch_check-8", "agreement")
	program(t, "epoch_check-8", "veto")
	program(t, "epoch_check-8", "reuse")
	program(t, "epoch_check-2", "drift")
	program(t, "epoch_check-2", "reuse")
	if long() {
		program(t, "epoch_check-2", "agreement")
		program(t, "epoch_check-8", "drift")
		program(t, "epoch_check-8", "drift3")
		program(t, "epoch_check-8", "reuse-long")
		program(t, "epoch_check-2", "reuse-long")
	}
}

// A check that finds nothing is worth as much as what it would find: each planted mistake must be found.
func TestEpochCheckFindsPlantedMistakes(t *testing.T) {
	program(t, "epoch_check-8-m1", "agreement") // entry stored, not compared and swapped
	program(t, "epoch_check-8-m2", "agreement") // frontier not read again
	program(t, "epoch_check-2-m3", "drift")     // log overwritten although a slow rank needs it
	program(t, "epoch_check-8-m4", "agreement") // prepared entry replaced, not helped
	program(t, "epoch_check-8-m5", "agreement") // own wish trusted, decision not read
	program(t, "epoch_check-8", "reuse", "1")   // publisher ignores the log
	program(t, "epoch_check-8", "reuse", "2")   // publisher ignores stalled ranks
}

func TestChoose(t *testing.T) { program(t, "test_choose") }

func TestDeviceQuestions(t *testing.T) { program(t, "test_device") }

func TestCaptured(t *testing.T) { program(t, "test_captured") }

// Every interleaving of captured calls and updates of NCCL's activation mask; then with planted mistakes, each of which
// must be found.
func TestMaskExhaustive(t *testing.T) {
	for mistake := range 7 {
		program(t, fmt.Sprintf("mask_check-m%d", mistake))
	}
}

func TestTransport(t *testing.T) { program(t, "test_transport") }

// What a rank says of its transport must be certain: each condition of the rule that is left out must be found.
func TestTransportFindsPlantedMistakes(t *testing.T) {
	for _, m := range []struct{ file, is, mistake string }{
		{"transport.c", "nRanks < 2 ||", ""},
		{"transport.c", "|| hidden_variables(machine)", ""},
		{"transport.c", `"libnccl-env.so"`, `"libnone.so"`},
		{"transport.c", "plugin && *plugin", "plugin"},
		{"transport.c", `&& strcasecmp(plugin, "none") != 0`, ""},
		{"transport.c", "|| has(machine, library)", ""},
		{"transport_node.c", "links >> 32 < nRanks", "links == 0"},
		{"transport_node.c", "if (n > MOST_GPUS) return DYN_TRANSPORT_UNKNOWN;", ""},
		{"transport_node.c", "if (machine->links) *machine->links = links;", ""},
		{"transport_node.c", "if (links == 0) links = ask(machine);", "links = ask(machine);"},
		{"transport_node.c", "return answers ? (uint64_t)n << 32 | kind : 0;", "return (uint64_t)8 << 32 | kind;"},
		{"transport_node.c", "if (!library) return 0;", "if (!library) return (uint64_t)8 << 32;"},
		{"transport_node.c", "|| split(nvml, gpus[i])", ""},
		{"transport_node.c", "&& read == STATUS_OK", ""},
		{"transport_node.c", "&& write == STATUS_OK", ""},
		{"transport_node.c", "link != STATUS_OK && link != STATUS_UNKNOWN", "link != STATUS_OK"},
		{"transport_node.c", "joined == pairs", "joined > 0"},
		{"transport_node.c", "&& !links", ""},
		{"transport_node.c", "MOST_LINKS 18", "MOST_LINKS 17"},
		{"transport_node.c", "apart == pairs", "apart > 0"},
		{"transport_node.c", "(apart > 0 ? APART : 0)", "0"},
		{"transport_node.c", "& ~APART", ""},
		{"transport_node.c", "if (told_otherwise()) return DYN_TRANSPORT_UNKNOWN;", ""},
		{"transport_node.c", "value && *value", "value"},
		{"transport_net.c", "if (!dir) return -1;", "if (!dir) return 0;"},
		{"transport_net.c", `"4: ACTIVE"`, `"ACTIVE"`},
		{"transport_net.c", ` || reads(port, "link_layer", "Ethernet")`, ""},
		{"transport_net.c", `&& (reads(port, "link_layer", "InfiniBand") || reads(port, "link_layer", "Ethernet"))`, ""},
		{"transport_net.c", `|| strstr(target, "[infinibandevent]") != NULL`, ""},
		{"transport_net.c", `if (is_set("NCCL_IB_HCA")) return 0;`, ""},
		{"transport_net.c", `"NCCL_NET_PLUGIN"`, `"NCCL_NONE"`},
		{"transport_net.c", `"libnccl-net.so"`, `"libnone.so"`},
		{"transport_net.c", "name || dyn_machine_plugin", "dyn_machine_plugin"},
		{"transport_net.c", "if (nccl_is_on(\"NCCL_IB_DISABLE\")) return sockets;", ""},
		{"transport_net.c", "nccl_is_on(\"NCCL_IB_DISABLE\")", "getenv(\"NCCL_IB_DISABLE\")"},
		{"transport_net.c", "networks == DYN_NETWORK_SOCKET", "networks & DYN_NETWORK_SOCKET"},
		{"transport_net.c", "!name && networks == DYN_NETWORK_IB", "networks == DYN_NETWORK_IB"},
		{"transport_net.c", "if (open == 0) return sockets;", ""},
		{"transport_net.c", "&& networks == DYN_NETWORK_ANY", ""},
		{"transport_net.c", "&& nics > 0", ""},
		{"transport_net.c", "open > 0 &&", ""},
	} {
		t.Run(m.file+" "+m.is, func(t *testing.T) {
			t.Parallel()
			out, err := plantedPlugin(t, "test_transport", m.file, m.is, m.mistake)
			if err == nil || !strings.Contains(out, "failed:") {
				t.Errorf("not found: %v: %s", err, out)
			}
		})
	}
}

func TestBadFiles(t *testing.T) { program(t, "test_files") }

// Forks, signals and threads that end, in the middle of it.
func TestProcesses(t *testing.T) { program(t, "test_processes") }

func TestNamespaces(t *testing.T) { program(t, "test_namespace") }

func TestAbsentDaemonIsSaid(t *testing.T) { program(t, "test_daemon") }

func TestWhyIsSaid(t *testing.T) {
	program(t, "test_why", filepath.Join(build, "libnccl-tuner-dynamiccl.so"))
}

func TestNoSystemCallNoAllocation(t *testing.T) { program(t, "test_no_syscall") }

func TestLifecycle(t *testing.T) {
	communicators := "20000" // one that leaves a byte in 100 of them is found
	if long() {
		communicators = "100000"
	}
	program(t, "test_lifecycle", filepath.Join(build, "libnccl-tuner-dynamiccl.so"), communicators)
}

func TestStress(t *testing.T) {
	if long() {
		program(t, "stress", "8", "10000000", "100", "1000")
	}
	program(t, "stress", "8", "400000", "20", "100")
}

// NCCL's entry points and nothing else, under both names one file, and no dependency but libc.
func TestLibrary(t *testing.T) {
	want := []string{
		"ncclProfiler_v1", "ncclProfiler_v2", "ncclProfiler_v3", "ncclProfiler_v4", "ncclProfiler_v5", "ncclProfiler_v6",
		"ncclProfiler_v7", "ncclTunerPlugin_v2", "ncclTunerPlugin_v3", "ncclTunerPlugin_v4", "ncclTunerPlugin_v5",
		"ncclTunerPlugin_v6",
	}
	got, needed, soname := testbuild.Library(t, filepath.Join(build, "libnccl-tuner-dynamiccl.so"))
	if !slices.Equal(got, want) {
		t.Errorf("exported: %v\nwant:     %v", got, want)
	}
	for _, n := range needed {
		if !slices.Contains([]string{"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, n) {
			t.Errorf("needs %s", n)
		}
	}
	if len(soname) > 0 {
		t.Errorf("soname %v: the loader would take a second file of that name for the first", soname)
	}
	target, err := os.Readlink(filepath.Join(build, "libnccl-profiler-dynamiccl.so"))
	if err != nil || target != "libnccl-tuner-dynamiccl.so" {
		t.Errorf("the profiler's name points to %q, %v", target, err)
	}
}
