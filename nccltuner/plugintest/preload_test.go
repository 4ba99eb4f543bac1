package plugintest

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

func preload(t *testing.T, program string, args ...string) string {
	t.Helper()
	return preloadOf(t, filepath.Join(build, "libdynamiccl.so"), program, args...)
}

func preloadOf(t *testing.T, library, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := testbuild.Command(ctx, filepath.Join(preloadTests(), program), args...)
	cmd.Env = []string{"LD_PRELOAD=" + library}
	var said, failed bytes.Buffer
	cmd.Stderr, cmd.Stdout = &said, &failed
	if err := cmd.Run(); err != nil {
		t.Errorf("%s %s: %v\n%s%s", program, strings.Join(args, " "), err, said.Bytes(), failed.Bytes())
	}
	return said.String()
}

// In front of a fake NCCL: every call arrives with all its arguments, those of captured streams without KernelCh.
func TestPreload(t *testing.T) {
	for _, how := range []string{"local", "global"} {
		said := preload(t, "test_preload", how, preloadTests())
		if n := strings.Count(said, "ncclCommInitAll names no network: its communicators have the first that NCCL finds"); n != 1 {
			t.Errorf("%s: said %d times what becomes of communicators without a config:\n%s", how, n, said)
		}
	}
}

// NCCL within another library, and NCCL that is unloaded and loaded again.
func TestNCCLElsewhere(t *testing.T) { preload(t, "test_elsewhere", preloadTests()) }

// A program that began without libdl and libpthread, where these are libraries of their own.
func TestLateGlibc(t *testing.T) {
	preloadOf(t, filepath.Join(preloadTests(), "late", "libdynamiccl.so"), "test_late", preloadTests())
}

// NCCL that has not loaded the plugin: when that is said.
func TestPluginAbsent(t *testing.T) { preload(t, "test_absent", preloadTests()) }

// Calls that are timed by CUDA events: what comes of them, whatever driver, program and plugin do meanwhile.
func TestProbes(t *testing.T) { preload(t, "test_probe", preloadTests()) }

// Groups whose calls are timed, and those that are left alone.
func TestGroups(t *testing.T) { preload(t, "test_groups", preloadTests()) }

// TestSends: sizes of messages over TCP wait for these, and nothing else waits.
func TestSends(t *testing.T) { preload(t, "test_sends", preloadTests()) }

// Functions of a program's own that are called as those which the library has for NCCL's sockets.
func TestNamesOfTheProgram(t *testing.T) { preload(t, "test_names") }

// A tool with a dlsym of its own.
func TestAnotherDlsym(t *testing.T) { preload(t, "test_hook", preloadTests()) }

// Edges between our kernels in CUDA graphs.
func TestGraphEdges(t *testing.T) { preload(t, "test_graphs") }

// The list of calls that are timed one by one.
func TestWatchList(t *testing.T) { preload(t, "test_watch") }

// Memory that the program has registered, on one thread and on several, these under the thread sanitizer as well.
func TestWindows(t *testing.T) {
	preload(t, "test_windows")
	preload(t, "test_peers")
	if said, err := testbuild.Command(t.Context(), filepath.Join(preloadTests(), "threads", "test_windows")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// The same as TestProbes under the thread sanitizer, with the library linked in.
func TestProbesThreads(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	folder := filepath.Join(preloadTests(), "threads")
	cmd := testbuild.Command(ctx, filepath.Join(folder, "test_probe"), folder)
	cmd.Env = []string{"TSAN_OPTIONS=die_after_fork=0 atexit_sleep_ms=0"} // every test is a child
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}

// Without any NCCL every call fails, and one line says why.
func TestPreloadWithoutNCCL(t *testing.T) {
	if said := preload(t, "test_preload", "none"); strings.Count(said, "\n") != 1 || !strings.Contains(said, "libnccl.so.2") {
		t.Errorf("it says %q", said)
	}
}

// Every process that a program under it starts has this memory, too, of which it may have little to give: it is in what mlockall locks
// and RLIMIT_DATA counts; and what each thread has of it comes off the thread's stack.
func TestPreloadLibraryIsSmall(t *testing.T) {
	var bytes uint64
	for _, p := range testbuild.OpenLibrary(t, filepath.Join(build, "libdynamiccl.so")).Progs {
		if p.Type == elf.PT_TLS && p.Memsz > 320 {
			t.Errorf("it has %d bytes of each thread's stack, 320 at most are wanted", p.Memsz)
		}
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_W != 0 {
			bytes += p.Memsz
		}
	}
	if bytes == 0 || bytes > 256<<10 {
		t.Errorf("it has %d KiB of writable memory, 256 at most are wanted", bytes>>10)
	}
}

// A program does not start under a preloaded library that wants a newer glibc than its own, as it may have in a container, and NCCL
// gets no plugin. README says which is needed.
func TestLibrariesWantAnOldGlibc(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`glibc 2\.(\d+) or newer`).FindSubmatch(readme)
	if said == nil {
		t.Fatal("README does not say which glibc is needed")
	}
	needed, err := strconv.Atoi(string(said[1]))
	if err != nil {
		t.Fatal(err)
	}
	for _, library := range []string{"libdynamiccl.so", "libnccl-tuner-dynamiccl.so"} {
		symbols, err := testbuild.OpenLibrary(t, filepath.Join(build, library)).ImportedSymbols()
		if err != nil {
			t.Fatal(err)
		}
		wanted := 0
		for _, s := range symbols {
			version, ok := strings.CutPrefix(s.Version, "GLIBC_2.")
			if !ok {
				continue
			}
			wanted++
			if minor, err := strconv.Atoi(strings.Split(version, ".")[0]); err != nil || minor > needed {
				t.Errorf("%s: %s of %s: README says that 2.%d is enough", library, s.Name, s.Version, needed)
			}
		}
		if wanted == 0 {
			t.Errorf("%s wants nothing of glibc", library)
		}
	}
}

// What nccl.h has and the library does not stand before is in the docs, each with a reason, and nothing else is.
func TestWhatIsNotIntercepted(t *testing.T) {
	header, err := os.ReadFile("../../.cache/cuda/nvidia/nccl-2.32.3/include/nccl.h")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("no nccl.h 2.32.3: `make cuda` fetches it")
	}
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/design/timing.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "### What is not intercepted\n")
	table, _, ends := strings.Cut(section, "\n\n- ")
	if !found || !ends {
		t.Fatal("the docs have no such section")
	}
	has := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ *(?:ncclResult_t|const char\*|void) +(nccl[A-Z]\w*) *\(`).FindAllStringSubmatch(string(header), -1) {
		has[m[1]] = true
	}
	if len(has) < 70 {
		t.Fatalf("%d functions in nccl.h", len(has))
	}
	shows, _, _ := testbuild.Library(t, filepath.Join(build, "libdynamiccl.so"))
	for _, name := range shows {
		delete(has, name)
	}
	for _, row := range strings.Split(table, "\n") {
		functions, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		if !strings.HasPrefix(functions, "`nccl") {
			continue
		}
		for _, name := range strings.Split(functions, ", ") {
			name = strings.Trim(name, "`")
			if !has[name] {
				t.Errorf("the docs have %s, which is intercepted, or not in nccl.h, or there twice", name)
			}
			delete(has, name)
		}
	}
	for name := range has {
		t.Errorf("%s is neither intercepted nor in the docs", name)
	}
}

// It exports NCCL's calls, dlsym, by which others find these, send, recv and accept, through which NCCL's go, what the plugin looks for and dynamiccl.h, and needs nothing but libc.
func TestPreloadLibrary(t *testing.T) {
	shows, needs, _ := testbuild.Library(t, filepath.Join(build, "libdynamiccl.so"))
	var found bool
	api := []string{"dynamicclVersion", "dynamicclIntercepted", "dynamicclHasKernels", "dynamicclAllReduceAddRmsNorm", "dynamicclHasAllToAllv", "dynamicclAllToAllv"}
	for _, name := range shows {
		found = found || name == "dynamiccl_preload"
		if name != "dynamiccl_preload" && name != "send" && name != "recv" && name != "accept" && name != "dlsym" && !strings.HasPrefix(name, "nccl") && !slices.Contains(api, name) {
			t.Errorf("it exports %s", name)
		}
	}
	if !found {
		t.Error("it does not export dynamiccl_preload")
	}
	for _, l := range needs {
		if !slices.ContainsFunc([]string{"libc.so", "libdl.so", "ld-linux"}, func(p string) bool { return strings.HasPrefix(l, p) }) {
			t.Errorf("it needs %s", l)
		}
	}
}
