package live

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"dynamiccl/actions"
	"dynamiccl/nccltuner/ranklog"
)

// What the user has set stays, and run says what that means, in one line.
func TestRunRespectsTheUser(t *testing.T) {
	t.Parallel()
	const show = "env | grep -E '^(NCCL_|LD_PRELOAD|DYNAMICCL_(DIR|RUN|NO_EXPLORE|FIXED_NUMERICS))' | sort"
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		says string   // "": nothing before the command's end
		sees []string // by the command; $LIB, $DIR
	}{
		{name: "nothing", sees: []string{"DYNAMICCL_DIR=$DIR", "DYNAMICCL_RUN=", "LD_PRELOAD=$LIB/libdynamiccl.so", "NCCL_PROFILER_PLUGIN=$LIB/libnccl-profiler-dynamiccl.so",
			"NCCL_SET_STACK_SIZE=1", "NCCL_SYM_NOWIN_ENABLE=1", "NCCL_TUNER_PLUGIN=$LIB/libnccl-tuner-dynamiccl.so"}},
		{name: "another tuner", env: []string{"NCCL_TUNER_PLUGIN=other"}, says: "NCCL_TUNER_PLUGIN=other is yours and stays: that plugin chooses",
			sees: []string{"DYNAMICCL_DIR=$DIR", "NCCL_TUNER_PLUGIN=other"}},
		{name: "no tuner", env: []string{"NCCL_TUNER_PLUGIN=none"}, says: "NCCL_TUNER_PLUGIN=none is yours",
			sees: []string{"DYNAMICCL_DIR=$DIR", "NCCL_TUNER_PLUGIN=none"}},
		{name: "our tuner by name", env: []string{"NCCL_TUNER_PLUGIN=dynamiccl"}, sees: []string{"DYNAMICCL_DIR=$DIR", "DYNAMICCL_RUN=",
			"LD_PRELOAD=$LIB/libdynamiccl.so", "NCCL_PROFILER_PLUGIN=$LIB/libnccl-profiler-dynamiccl.so", "NCCL_SET_STACK_SIZE=1", "NCCL_SYM_NOWIN_ENABLE=1", "NCCL_TUNER_PLUGIN=dynamiccl"}},
		{name: "another profiler", env: []string{"NCCL_PROFILER_PLUGIN=/x/p.so"}, says: "set DYNAMICCL_CHAIN_PROFILER=/x/p.so",
			sees: []string{"DYNAMICCL_DIR=$DIR", "DYNAMICCL_RUN=", "NCCL_PROFILER_PLUGIN=/x/p.so", "NCCL_SET_STACK_SIZE=1",
				"NCCL_TUNER_PLUGIN=$LIB/libnccl-tuner-dynamiccl.so"}},
		{name: "NCCL_ALGO", env: []string{"NCCL_ALGO=Ring"}, says: "NCCL_ALGO=Ring is yours and stays: communicators pass through",
			sees: []string{"DYNAMICCL_DIR=$DIR", "DYNAMICCL_RUN=", "LD_PRELOAD=$LIB/libdynamiccl.so", "NCCL_ALGO=Ring", "NCCL_PROFILER_PLUGIN=$LIB/libnccl-profiler-dynamiccl.so",
				"NCCL_SET_STACK_SIZE=1", "NCCL_TUNER_PLUGIN=$LIB/libnccl-tuner-dynamiccl.so"}},
		{name: "no device kernels", env: []string{"NCCL_SYM_NOWIN_ENABLE=0"}, says: "NCCL_SYM_NOWIN_ENABLE=0 is yours and stays",
			sees: []string{"DYNAMICCL_DIR=$DIR", "DYNAMICCL_RUN=", "LD_PRELOAD=$LIB/libdynamiccl.so", "NCCL_PROFILER_PLUGIN=$LIB/libnccl-profiler-dynamiccl.so",
				"NCCL_SET_STACK_SIZE=1", "NCCL_SYM_NOWIN_ENABLE=0", "NCCL_TUNER_PLUGIN=$LIB/libnccl-tuner-dynamiccl.so"}},
		{name: "another preload", env: []string{"LD_PRELOAD=libdl.so.2"}, sees: []string{"DYNAMICCL_DIR=$DIR", "DYNAMICCL_RUN=",
			"LD_PRELOAD=$LIB/libdynamiccl.so:libdl.so.2", "NCCL_PROFILER_PLUGIN=$LIB/libnccl-profiler-dynamiccl.so",
			"NCCL_SET_STACK_SIZE=1", "NCCL_SYM_NOWIN_ENABLE=1", "NCCL_TUNER_PLUGIN=$LIB/libnccl-tuner-dynamiccl.so"}},
		{name: "flags", args: []string{"--no-explore", "--fixed-numerics"}, sees: []string{"DYNAMICCL_DIR=$DIR", "DYNAMICCL_FIXED_NUMERICS=true",
			"DYNAMICCL_NO_EXPLORE=true", "DYNAMICCL_RUN=", "LD_PRELOAD=$LIB/libdynamiccl.so", "NCCL_PROFILER_PLUGIN=$LIB/libnccl-profiler-dynamiccl.so",
			"NCCL_SET_STACK_SIZE=1", "NCCL_TUNER_PLUGIN=$LIB/libnccl-tuner-dynamiccl.so"}},
		{name: "no plugin", args: []string{"--plugin-dir", "/nowhere"}, says: "running as plain NCCL: libnccl-tuner-dynamiccl.so and libnccl-profiler-dynamiccl.so are not in /nowhere",
			sees: []string{"DYNAMICCL_DIR=$DIR"}},
		{name: "no directory", env: []string{"DYNAMICCL_DIR=/proc/nowhere"}, says: "running as plain NCCL: directory /proc/nowhere",
			sees: []string{"DYNAMICCL_DIR=/proc/nowhere"}},
		{name: "wrong setting", env: []string{"DYNAMICCL_TICK=never"}, says: "running as plain NCCL: environment variable DYNAMICCL_TICK",
			sees: []string{"DYNAMICCL_DIR=$DIR"}},
		{name: "a daemon that does not start", args: []string{"--policy", "/dev/null"}, says: "running as plain NCCL: the daemon did not start: ",
			sees: []string{"DYNAMICCL_DIR=$DIR"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRunRig(t)
			p := r.run(slices.Concat(tc.args, []string{"--", "sh", "-c", show})...)
			p.Env = append(p.Env, tc.env...)
			if code := p.all(); code != 0 {
				t.Fatalf("exit code %d\n%s", code, p.err.String())
			}
			if tc.says != "" {
				p.wants(tc.says)
			}
			if n := strings.Count(p.err.String(), "\n"); n > 2 || tc.says == "" && n > 1 {
				t.Errorf("%d lines of our own:\n%s", n, p.err.String())
			}
			var want []string
			for _, v := range tc.sees {
				want = append(want, strings.NewReplacer("$LIB", r.build.Lib, "$DIR", r.dir).Replace(v))
			}
			got := strings.Split(strings.TrimSpace(p.out.String()), "\n")
			for i, v := range got {
				if strings.HasPrefix(v, "DYNAMICCL_RUN=") {
					got[i] = "DYNAMICCL_RUN=" // another one every time
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("the command sees\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			quiet := r.run(slices.Concat([]string{"--quiet"}, tc.args, []string{"--", "true"})...)
			quiet.Env = append(quiet.Env, tc.env...)
			if code := quiet.all(); code != 0 || quiet.err.String() != "" {
				t.Errorf("--quiet: exit code %d, said %q", code, quiet.err.String())
			}
			r.noDaemon()
		})
	}
}

// The user's NCCL_PROTO on a real run: nothing is chosen; said once, before.
func TestRunPassesThrough(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	p := r.run(append([]string{"--"}, r.ranks("proto", 2000, 3000)...)...)
	p.Env = append(p.Env, "NCCL_PROTO=Simple")
	if code := p.all(); code != 0 {
		t.Fatal(p.err.String())
	}
	if rep := r.compare("proto"); rep.Chosen != 0 {
		t.Errorf("%d calls chosen", rep.Chosen)
	}
	if n := strings.Count(p.err.String(), "dynamiccl"); n != 1 { // ranks say nothing of it themselves
		t.Errorf("%d lines of our own, want 1:\n%s", n, p.err.String())
	}
	// Where only the ranks know, the end says it.
	p = r.run(append([]string{"--", "env", "NCCL_ALGO=Ring"}, r.ranks("algo", 2000, 3000)...)...)
	if code := p.all(); code != 0 {
		t.Fatal(p.err.String())
	}
	p.wants("nothing was tuned: NCCL_ALGO or NCCL_PROTO is set on a rank")
	if strings.Contains(p.err.String(), "dynamiccl: ") {
		t.Errorf("ranks say it as well:\n%s", p.err.String())
	}
}

// What run cannot know its ranks say, with NCCL_DEBUG not set: that their NCCL is too old. Not with --quiet.
func TestRunOfAnOldNCCL(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	for _, quiet := range []string{"--quiet=false", "--quiet"} {
		p := r.run(append([]string{quiet, "--"}, r.ranks("old", 1000, 3000, "--max-tuner-abi", "3", "--max-profiler-abi", "1")...)...)
		if code := p.all(); code != 0 {
			t.Fatal(p.err.String())
		}
		if rep := r.compare("old"); rep.Chosen != 0 {
			t.Errorf("%d calls chosen", rep.Chosen)
		}
		said := strings.Count(p.err.String(), "dynamiccl: this NCCL speaks tuner v3, which names no communicator: running plain NCCL")
		if quiet == "--quiet" && p.err.String() != "" || quiet != "--quiet" && (said != 4 || strings.Count(p.err.String(), "\n") != 5) {
			t.Errorf("%s: %d of 4 ranks say why, and the end one line:\n%s", quiet, said, p.err.String())
		}
	}
}

// A program that did not ask for kernel events, or neither promises to capture no CUDA graphs nor calls NCCL through the
// preload library (the harness calls the plugin itself), is not timed: nothing is tried, and run says why.
func TestRunWithoutTimes(t *testing.T) {
	t.Parallel()
	for _, variable := range []string{"DYNAMICCL_KERNEL_EVENTS", "DYNAMICCL_NO_GRAPHS"} {
		t.Run(variable, func(t *testing.T) { runWithoutTimes(t, variable) })
	}
}

func runWithoutTimes(t *testing.T, variable string) {
	r := newRunRig(t)
	p := r.run(append([]string{"--"}, r.ranks("graphs", 4000, 3000)...)...)
	p.Env = append(p.Env, variable+"=0")
	if code := p.all(); code != 0 {
		t.Fatal(p.err.String())
	}
	if rep := r.compare("graphs"); rep.Chosen != 0 {
		t.Errorf("%d calls chosen", rep.Chosen)
	}
	p.wants("nothing was tuned: a rank's calls are not timed", "libdynamiccl.so")
}

// Ranks of a launcher that hands on NCCL's variables and not ours (Ray's workers, ssh) come to the daemon, and nobody's run is told of them.
func TestRunWhoseRanksLoseItsVariables(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	p := r.run(append([]string{"--", "env", "-u", "DYNAMICCL_RUN"}, r.ranks("strays", 1000, 3000)...)...)
	if code := p.all(); code != 0 {
		t.Fatal(p.err.String())
	}
	p.wants("nothing was tuned: no communicator of this run joined, and 1 communicator came from processes that do not have its variables", "`dynamiccld env` prints")
}

// Ranks that have no room for their rings are tuned by nothing that they measure, and run says so: NCCL's own warning is seen by few.
func TestRunWithoutRings(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	p := r.run(append([]string{"--", "bash", "-c", `ulimit -f 4096; exec "$@"`, "bash"}, r.ranks("rings", 6000, 2000)...)...)
	if code := p.all(); code != 0 {
		t.Fatal(p.err.String())
	}
	p.wants("no samples come from process ", "it could make no ring in "+r.dir, "make room there (5.5 MiB a process), raise a limit on the size of files (ulimit -f), or set DYNAMICCL_DIR")
}

// With fixed numerics every collective that adds up runs NCCL's own choice, on every call; the others are tuned. A run
// without it beside, on the same daemon, is tuned altogether.
func TestFixedNumerics(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	free := r.run(append([]string{"--"}, r.ranks("free", 6000, 1500)...)...).begin()
	fixed := r.run(append([]string{"--fixed-numerics", "--"}, r.ranks("fixed", 6000, 1500)...)...)
	if code := fixed.all(); code != 0 {
		t.Fatal(fixed.err.String())
	}
	if code := free.end(); code != 0 {
		t.Fatal(free.err.String())
	}
	r.compare("fixed")
	r.compare("free")
	fixedSums, fixedCopies := r.chosen("fixed")
	freeSums, freeCopies := r.chosen("free")
	if fixedSums != 0 || fixedCopies == 0 || freeSums == 0 || freeCopies == 0 {
		t.Errorf("calls chosen: fixed %d of sums, %d of copies; free %d and %d; want none of the first alone", fixedSums, fixedCopies, freeSums, freeCopies)
	}
}

// chosen counts a job's calls that were not NCCL's default, of collectives that add up and of those that copy.
func (r *runRig) chosen(job string) (sums, copies int) {
	r.Helper()
	f, err := os.Open(filepath.Join(r.tmp, job+"-0.log"))
	if err != nil {
		r.Fatal(err)
	}
	defer f.Close()
	d, err := ranklog.NewDecoder(f)
	if err != nil {
		r.Fatal(err)
	}
	for {
		rec, err := d.Next()
		if errors.Is(err, io.EOF) {
			return sums, copies
		}
		if err != nil {
			r.Fatal(err)
		}
		switch {
		case !rec.Chosen:
		case rec.Collective == actions.AllGather || rec.Collective == actions.Broadcast:
			copies++
		default:
			sums++
		}
	}
}

// A shell that evaluates env has what run gives, whatever is in the directory's name.
func TestEnvForAShell(t *testing.T) {
	r := newRunRig(t)
	r.dir = filepath.Join(r.tmp, `it's $HOME "odd" \n`)
	const show = "env | grep -E '^(NCCL_|DYNAMICCL_DIR)' | sort"
	under := r.run("-q", "--", "sh", "-c", show)
	if code := under.all(); code != 0 {
		t.Fatal(under.err.String())
	}
	shell := r.command("sh", "-c", `eval "$(`+r.build.Daemon+` env)"; `+show)
	if code := shell.all(); code != 0 || shell.out.String() != under.out.String() || !strings.Contains(under.out.String(), "DYNAMICCL_DIR="+r.dir) {
		t.Errorf("exit code %d, under run\n%safter eval\n%s", code, under.out.String(), shell.out.String())
	}
	shell.wants("no daemon lives in " + r.dir)
}

// LL is another thing where NCCL runs device kernels for it, so what is learned with them and without is stored apart; an
// NCCL that does not read the variable is not concerned.
func TestDeviceKernelsAreStoredApart(t *testing.T) {
	t.Parallel()
	for version, apart := range map[string]bool{"2.28.9": false, "2.30.7": true} {
		r := newRunRig(t)
		for i, device := range []string{"1", "0"} {
			p := r.run(append([]string{"-q", "--"}, r.ranks("apart"+device, 5000, 3000, "--nccl", version)...)...)
			p.Env = append(p.Env, "NCCL_SYM_NOWIN_ENABLE="+device)
			if code := p.all(); code != 0 {
				t.Fatal(p.err.String())
			}
			table := r.command(r.build.Daemon, "table", "--store", r.store)
			if code := table.all(); code != 0 {
				t.Fatal(table.err.String())
			}
			if got, want := strings.Count(table.out.String(), "machine "), 1+i; apart && got != want || !apart && got != 1 {
				t.Errorf("NCCL %s, NCCL_SYM_NOWIN_ENABLE=%s: %d machines in the store:\n%s", version, device, got, table.out.String())
			}
			if said := strings.Contains(table.out.String(), "LL on device kernels"); said != apart {
				t.Errorf("NCCL %s: the store names device kernels: %v", version, said)
			}
		}
	}
}

// A store that cannot be written is said where a program is started, for who starts it looks at no daemon's log.
func TestRunWithoutAStore(t *testing.T) {
	t.Parallel()
	for store, lost := range map[string]bool{"/proc/new/store.db": true, "none": false} {
		r := newRunRig(t)
		p := r.run("--store", store, "--", "true")
		if code := p.all(); code != 0 {
			t.Errorf("%s: exit code %d", store, code)
		}
		if said := strings.Contains(p.err.String(), "what is learned is lost with the daemon: choices are kept in memory only: opening "+store); said != lost {
			t.Errorf("%s:\n%s", store, p.err.String())
		}
	}
}

// Nor does who starts a program see, in a daemon's log that the next one begins anew, that all that was known has gone.
func TestRunWithADamagedStore(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	if code := r.run("--", "true").all(); code != 0 { // makes a store
		t.Fatalf("exit code %d", code)
	}
	if err := os.Truncate(r.store, 9000); err != nil {
		t.Fatal(err)
	}
	damaged := "the store " + r.store + " was damaged, and what it knew is not used: it was moved to " + r.store + ".corrupt-1"
	for _, says := range []bool{true, false} {
		p := r.run("--", r.build.Daemon, "status")
		if code := p.all(); code != 0 {
			t.Fatalf("exit code %d\n%s", code, p.err.String())
		}
		if said := strings.Contains(p.err.String(), damaged); said != says {
			t.Errorf("said that the store was damaged: %v, want %v\n%s", said, says, p.err.String())
		}
		if said := strings.Contains(p.out.String(), "a damaged one was moved to "+r.store+".corrupt-1"); said != says {
			t.Errorf("status said so: %v, want %v\n%s", said, says, p.out.String())
		}
	}
}

// A store that cannot be written in the end, as on a disk that another program has filled meanwhile, is said by the run that ends the daemon.
func TestRunWhoseStoreIsLost(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	p := r.run(append([]string{"--"}, r.ranks("lost", 6000, 3000)...)...).begin()
	st := r.daemon("a tuned communicator", tunes)
	if err := unix.Prlimit(st.PID, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 16 << 10, Max: 16 << 10}, nil); err != nil {
		t.Fatal(err)
	}
	if code := p.end(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, p.err.String())
	}
	p.wants(" learned choices are lost: writing "+r.store+": ", "remedy: ")
}

// What run cannot tune runs as plain NCCL also in a shell that has taken up `dynamiccld env`: a daemon that lives would tune it else, and
// --fixed-numerics is a promise.
func TestRunPlainIsPlain(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	p := r.run("--fixed-numerics", "--", "sh", "-c", `echo "<$NCCL_TUNER_PLUGIN$NCCL_PROFILER_PLUGIN$LD_PRELOAD>"`)
	p.Env = append(p.Env, "NCCL_TUNER_PLUGIN="+r.build.Tuner(), "NCCL_PROFILER_PLUGIN="+r.build.Profiler(), "DYNAMICCL_TICK=5",
		"LD_PRELOAD="+filepath.Join(r.build.Lib, "libdynamiccl.so"))
	if code := p.all(); code != 0 || p.out.String() != "<>\n" {
		t.Errorf("exit code %d, the program loads %s", code, p.out.String())
	}
	p.wants("running as plain NCCL")
}

// An environment that is just short enough runs without our variables where it is too long with them.
func TestRunLongEnvironment(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	p := r.run("--", "sh", "-c", "exit 3")
	p.Env = append(p.Env, "LD_PRELOAD="+strings.Repeat("x", 128<<10-len("LD_PRELOAD=")-2)) // MAX_ARG_STRLEN is 128 KiB
	if code := p.all(); code != 3 {
		t.Errorf("exit code %d, want the command's 3", code)
	}
	p.wants("running as plain NCCL: with this run's variables the environment is longer than the kernel takes")
	if strings.Contains(p.err.String(), "nothing was tuned") {
		t.Errorf("it is said twice:\n%s", p.err.String())
	}
	r.noDaemon()
}
