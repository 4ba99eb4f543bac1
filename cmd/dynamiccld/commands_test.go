package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/fakebackend"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/store"
)

// world is where one command runs: a directory with or without a daemon, files, an environment.
type world struct {
	t    *testing.T
	root string // of everything: $ROOT in outputs
	dir  string // of the daemon: $DIR in outputs
}

func newWorld(t *testing.T) *world {
	t.Helper()
	// Short, because a socket's path has at most 107 bytes.
	root, err := os.MkdirTemp("", "dyn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	w := &world{t, root, filepath.Join(root, "run")}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return w
}

// serve answers for b until the returned function is called.
func (w *world) serve(b control.Backend) (stop func()) {
	w.t.Helper()
	l, err := control.Listen(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := control.NewServer(b, slog.New(slog.DiscardHandler), func() time.Time { return fakebackend.Now })
	go func() { done <- s.Serve(ctx, l) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

// run gives output and exit code of one command line; the environment is env and where everything is.
func (w *world) run(line, stdin string, env ...string) (out string, code int) {
	w.t.Helper()
	return w.runWithin(context.Background(), line, stdin, env...)
}

func (w *world) runWithin(ctx context.Context, line, stdin string, env ...string) (out string, code int) {
	vars := map[string]string{"HOME": w.root, "DYNAMICCL_DIR": w.dir, "DYNAMICCL_STORE": filepath.Join(w.root, "store.db")}
	for _, e := range env {
		name, value, _ := strings.Cut(w.real(e), "=")
		vars[name] = value
	}
	var environ []string
	for name, value := range vars {
		environ = append(environ, name+"="+value)
	}
	// Defaults depend on who runs the tests, so commands see root; doctor compares owners and must see the truth.
	euid := 0
	if strings.HasPrefix(line, "doctor") {
		euid = os.Geteuid()
	}
	var stdout, stderr bytes.Buffer
	a := &app{stdin: strings.NewReader(stdin), stdout: &stdout, stderr: &stderr, getenv: func(n string) string { return vars[n] },
		environ: environ, euid: euid, now: func() time.Time { return fakebackend.Now }, open: openDaemon, sysroot: filepath.Join(w.root, "sys")}
	code = a.main(ctx, split(w.real(line)))
	return stdout.String() + stderr.String(), code
}

func (w *world) real(s string) string {
	return strings.NewReplacer("$DIR", w.dir, "$ROOT", w.root).Replace(s)
}

var freeSpace = regexp.MustCompile(`[0-9.]+ [KMGTP]iB free`)

// plain takes out of an output what differs from run to run.
func (w *world) plain(s string) string {
	s = strings.NewReplacer(w.dir, "$DIR", w.root, "$ROOT", fmt.Sprintf("uid %d", os.Geteuid()), "uid $UID").Replace(s)
	return freeSpace.ReplaceAllString(s, "$$SPACE free")
}

// split cuts a line into words; "double quotes" keep spaces.
func split(line string) []string {
	var words []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

func TestMain(m *testing.M) {
	version = "v1.2.3" // else outputs would hold what the Go tool makes of the checkout
	goleak.VerifyTestMain(m)
}

// TestCommands runs the scripts of testdata. `go test -rewrite` writes what commands say now.
//
//	run [daemon=busy|empty|failing] [store] [env=(NAME=VALUE,...)] [stdin=TEXT]
//	COMMAND LINE
func TestCommands(t *testing.T) {
	datadriven.Walk(t, "testdata/commands", func(t *testing.T, path string) {
		w := newWorld(t)
		learnedStore(t, filepath.Join(w.root, "learned.db"))
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "file":
				var name string
				d.ScanArgs(t, "name", &name)
				if err := os.WriteFile(filepath.Join(w.root, name), []byte(d.Input+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				return ""
			case "link":
				var name, to string
				d.ScanArgs(t, "name", &name)
				d.ScanArgs(t, "to", &to)
				if err := os.Symlink(to, filepath.Join(w.root, name)); err != nil {
					t.Fatal(err)
				}
				return ""
			case "show":
				data, err := os.ReadFile(w.real(d.Input))
				if err != nil {
					return w.plain(err.Error())
				}
				return w.plain(string(data))
			case "run":
				return w.command(t, d)
			}
			t.Fatalf("unknown directive %s", d.Cmd)
			return ""
		})
	})
}

func (w *world) command(t *testing.T, d *datadriven.TestData) string {
	var daemon string
	var env []string
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "daemon":
			daemon = arg.Vals[0]
		case "env":
			env = append(env, arg.Vals...)
		}
	}
	backends := map[string]func() *fakebackend.Backend{"busy": fakebackend.Busy, "empty": fakebackend.Empty,
		"failing": func() *fakebackend.Backend { b := fakebackend.Busy(); b.Refuse(); return b }}
	if daemon != "" {
		defer w.serve(backends[daemon]())()
	}
	line, stdin, _ := strings.Cut(d.Input, "\n")
	out, code := w.run(line, stdin, env...)
	return w.plain(out) + fmt.Sprintf("[exit %d]\n", code)
}

// learnedStore is a store file as a daemon leaves it.
func learnedStore(t *testing.T, path string) {
	t.Helper()
	s, err := store.Open(path, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	parse := func(text string) actions.Action {
		a, err := actions.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	learned := func(nccl int, c actions.Collective, log2 uint8, choice string, costNs, defaultNs float64) tuner.Learned {
		evidence := map[actions.Action]tuner.Estimate{actions.Default: {N: 400, MeanNs: defaultNs, VarLog: 0.0016}}
		evidence[parse(choice)] = tuner.Estimate{N: 900, MeanNs: costNs, VarLog: 0.0016}
		return tuner.Learned{Key: tuner.Key{Machine: "8x H200", GPUArch: "sm_90", NCCLVersion: nccl, Shape: state.Shape{Ranks: 8, Nodes: 1},
			Bucket: state.Bucket{Collective: c, Log2Bytes: log2}}, Action: parse(choice), CostNs: costNs, Default: defaultNs, Calls: 5000, Evidence: evidence}
	}
	over := func(transport string, l tuner.Learned) tuner.Learned {
		l.Key.Shape.Nodes, l.Key.Shape.Transport = 2, transport
		return l
	}
	instants := func(sinceAgo, diagnosedAgo time.Duration, l tuner.Learned) tuner.Learned {
		at := func(ago time.Duration) state.Ns { return state.Ns(fakebackend.Now.Add(-ago).UnixNano()) }
		l.SinceNs, l.Diagnosis, l.DiagnosisNs = at(sinceAgo), agents.DiagnosisCongestion, at(diagnosedAgo)
		return l
	}
	err = s.Put([]tuner.Learned{
		learned(23007, actions.AllReduce, 16, "Tree/LL128/8", 10_000, 12_000),
		learned(23007, actions.AllReduce, 17, "Tree/LL128/8", 11_000, 12_500),
		instants(3*time.Hour, time.Hour, learned(23007, actions.AllGather, 22, "Ring/LL128/24", 25_000, 34_800)),
		instants(-3*time.Hour, -time.Hour, learned(23007, actions.AllGather, 23, "Ring/LL128/24", 45_000, 54_800)), // the host's clock was ahead
		learned(22809, actions.AllReduce, 16, "Ring/LL", 9_000, 9_900),
		over("socket", learned(23203, actions.AllReduce, 16, "Ring/LL", 90_000, 99_000)),
		over("rdma", learned(23203, actions.AllReduce, 16, "Tree/LL128", 19_000, 19_900)),
		over("", learned(23203, actions.AllReduce, 17, "Tree/LL", 50_000, 60_000)),
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Who has typed "import -" and thinks better of it has no second Ctrl-C to type.
func TestImportStops(t *testing.T) {
	held, end := io.Pipe()
	defer end.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var stderr bytes.Buffer
	a := &app{stdin: held, stdout: io.Discard, stderr: &stderr, getenv: func(string) string { return "" }, now: time.Now}
	code := make(chan int, 1)
	go func() { code <- a.main(ctx, []string{"import", "-"}) }()
	cancel()
	select {
	case got := <-code:
		if got != exitFailed || !strings.Contains(stderr.String(), "stopped while standard input was read") {
			t.Errorf("exit code %d, %s", got, stderr.String())
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for the end of standard input")
	}
}
