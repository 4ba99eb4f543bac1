package sweep

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/forced"
)

func TestSweepGivesTheTableBack(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	if err := w.sweep(o); err != nil {
		t.Fatal(err)
	}
	w.same(o.Out)
	if w.opened != 1 {
		t.Errorf("ranks were started %d times", w.opened)
	}
	if n := w.measured["AllReduce 1024 default"]; n != 3 {
		t.Errorf("the default was measured %d times", n)
	}
	// The same command again has nothing to do.
	before := len(w.measured)
	count := total(w)
	if err := w.sweep(o); err != nil || total(w) != count || len(w.measured) != before {
		t.Errorf("measured again: %d, then %d points: %v", count, total(w), err)
	}
	w.same(o.Out)
}

func total(w *world) (n int) {
	for _, k := range w.measured {
		n += k
	}
	return n
}

func TestStoppedSweepGoesOn(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	stops := 0
	for at := 1; ; at += 97 {
		w.stopAt = at
		err := w.sweep(o)
		if err == nil {
			break
		}
		if !errors.Is(err, errStopped) || !strings.Contains(err.Error(), "same command") {
			t.Fatal(err)
		}
		stops++
		if at > 1 { // something is measured: what is there can be read
			readTable(t, o.Out)
		}
	}
	w.same(o.Out)
	for name, n := range w.measured {
		want := 1
		if strings.HasSuffix(name, "default") {
			want = 3
		}
		if n > want+1 { // the point at which it was stopped has no row
			t.Errorf("%s: measured %d times", name, n)
		}
	}
	if stops < 3 {
		t.Errorf("stopped only %d times", stops)
	}
}

// A sweep that goes on says how many points it has measured itself, by which it also knows how long the others take.
func TestProgressOfOneThatGoesOn(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	w.stopAt = 30 // within a bucket
	if err := w.sweep(o); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	said := new(bytes.Buffer)
	before, began := total(w), time.Unix(1e9, 0)
	o.Progress = said
	o.Now = func() time.Time { return began.Add(time.Duration(total(w)-before) * lineEvery) }
	w.stopAt = 0
	if err := w.sweep(o); err != nil {
		t.Fatal(err)
	}
	if first := " 1 points done, about "; !strings.Contains(said.String(), first) {
		t.Errorf("no line has %q:\n%s", first, said)
	}
	lines := regexp.MustCompile(`: (\d+) points done, about (\d+) to come, (\S+) left`).FindAllStringSubmatch(said.String(), -1)
	for i, line := range lines { // each point takes lineEvery here
		done, _ := strconv.Atoi(line[1])
		toCome, _ := strconv.Atoi(line[2])
		left, err := time.ParseDuration(line[3])
		if want := time.Duration(toCome) * lineEvery; err != nil || done != i+1 || left != want {
			t.Errorf("%q: want %v", line[0], want)
		}
	}
	if n := total(w) - before; len(lines) != n || lines[n-1][2] != "0" {
		t.Errorf("%d lines of %d points, the last %q", len(lines), n, lines[len(lines)-1])
	}
}

// What kill -9 leaves: a last line that is not whole, and a table that lags behind.
func TestTornJournal(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	w.stopAt = 200
	if err := w.sweep(o); !errors.Is(err, errStopped) {
		t.Fatal(err)
	}
	p := pathsOf(o.Out)
	whole, err := os.ReadFile(p.journal)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.journal, whole[:len(whole)-7], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.table, []byte("machine,nc"), 0o644); err != nil {
		t.Fatal(err)
	}
	w.stopAt = 0
	if err := w.sweep(o); err != nil {
		t.Fatal(err)
	}
	w.same(o.Out)
	if err := os.WriteFile(p.journal, []byte("machine,nccl\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := w.sweep(o); err == nil || !strings.Contains(err.Error(), "line 1") || !strings.Contains(err.Error(), "--restart") {
		t.Errorf("a journal that is none: %v", err)
	}
}

func TestFaultsCostPoints(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	o.Collectives, o.Sizes = []string{"AllReduce", AllToAll}, []uint64{1024, 4096}
	w.faults["AllReduce 1024 Ring/LL/2"] = &forced.Fault{Outcome: OutcomeHung, Err: errGone}
	w.faults["AllReduce 1024 Tree/LL/1"] = forced.NewFault(OutcomeWrong, "3 elements")
	w.faults["AllReduce 1024 Tree/LL/2"] = forced.NewFault(OutcomeOverruled, "ran Ring/LL/1")
	w.faults["probe AllReduce 4096"] = forced.NewFault(OutcomeHung, "the default hangs")
	var report bytes.Buffer
	o.Report = &report
	if err := w.sweep(o); err != nil {
		t.Fatal(err)
	}
	if w.opened != 4 { // three points ended their ranks
		t.Errorf("ranks were started %d times", w.opened)
	}
	got := readTable(t, o.Out)
	if buckets := got.Buckets(); len(buckets) != 1 || got.Skipped != 2 {
		t.Errorf("buckets %v, %d rows of AllToAll", buckets, got.Skipped)
	}
	text, err := os.ReadFile(o.Out)
	if err != nil || strings.Contains(string(text), ",1024,collective,Ring,LL,2,") || !strings.Contains(string(text), ",1024,collective,Ring,LL,4,") {
		t.Errorf("%s, %v", text, err)
	}
	points, _, err := readJournal(pathsOf(o.Out).journal)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]string{}
	for _, p := range points {
		if p.Outcome != OutcomeOK && p.Outcome != outcomeDone {
			outcomes[fmt.Sprint(p.Collective, " ", p.Bytes, " ", p.Action)] = p.Outcome + ": " + p.Reason
		}
	}
	for name, want := range map[string]string{"AllReduce 1024 Ring/LL/2": "hung: gone", "AllReduce 1024 Tree/LL/1": "wrong: 3 elements",
		"AllReduce 1024 Tree/LL/2": "overruled: ran Ring/LL/1", "AllReduce 4096 default": "hung: the default hangs"} {
		if outcomes[name] != want {
			t.Errorf("%s: %q, want %q", name, outcomes[name], want)
		}
	}
	if out := report.String(); !strings.Contains(out, "1 wrong") || !strings.Contains(out, "2 hung") || !strings.Contains(out, "AllReduce") {
		t.Errorf("report:\n%s", out)
	}
	// With --retry what gave no row is measured again, and nothing else.
	count := total(w)
	clear(w.faults)
	o.Retry = true
	o.Collectives, o.Sizes = []string{"AllReduce"}, []uint64{1024}
	if err := w.sweep(o); err != nil || total(w)-count != 3 {
		t.Errorf("%d points were measured again: %v", total(w)-count, err)
	}
	if text, err = os.ReadFile(o.Out); err != nil || !strings.Contains(string(text), ",1024,collective,Ring,LL,2,") {
		t.Errorf("%s, %v", text, err)
	}
	readTable(t, o.Out)
}

func TestGivesUp(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	o.Collectives, o.Sizes = []string{"AllReduce"}, []uint64{1024}
	for _, choice := range []string{"Tree/LL/1", "Tree/LL/2", "Tree/LL/4", "Tree/LL/8", "Tree/LL/16", "Tree/LL/24"} {
		w.faults["AllReduce 1024 "+choice] = forced.NewFault(OutcomeHung, "gone")
	}
	err := w.sweep(o)
	if err == nil || !strings.Contains(err.Error(), "5 points in a row") || !strings.Contains(err.Error(), "same command") {
		t.Fatal(err)
	}
	if w.measured["AllReduce 1024 Tree/LL/16"] != 0 && w.measured["AllReduce 1024 Tree/LL/24"] != 0 {
		t.Error("it went on after five")
	}
}

// What --choices name and nobody can run is said: the table has nothing of it.
func TestChoicesThatNothingCanRun(t *testing.T) {
	for choice, want := range map[string]string{"lsa": "nothing of lsa in --choices", "gin/gdaki": "nothing of gin in --choices", "symmetric": "--buffers registered",
		"nvls/simple": "NCCL allows for none", "ring/ll": "", "default": ""} {
		w := newWorld(t)
		o := w.options()
		o.Collectives, o.Sizes = []string{"AllReduce"}, []uint64{1024}
		p, err := ParsePattern(choice)
		if err != nil {
			t.Fatal(err)
		}
		said := new(bytes.Buffer)
		o.Choices, o.Progress = []Pattern{p}, said
		for range 2 { // also where all was measured before
			said.Reset()
			if err := w.sweep(o); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(said.String(), "--choices"); got != (want != "") || !strings.Contains(said.String(), want) {
				t.Errorf("%s: it said %q, want %q", choice, said, want)
			}
		}
	}
}

// Ranks that fail before anything new is measured of a size take nothing from what is measured of it.
func TestMeasuredStays(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	o.Collectives, o.Sizes = []string{"AllReduce"}, []uint64{1024}
	all := o
	ring, err := ParsePattern("ring")
	if err != nil {
		t.Fatal(err)
	}
	o.Choices = []Pattern{ring}
	if err := w.sweep(o); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	w.faults["probe AllReduce 1024"] = forced.NewFault(OutcomeHung, "the default hangs")
	said := new(bytes.Buffer)
	all.Out, all.Progress = o.Out, said
	if err := w.sweep(all); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(o.Out); err != nil || !bytes.Equal(before, after) || !strings.Contains(said.String(), "the default hangs") {
		t.Errorf("%v; it said\n%s\nof\n%s\nthere is left\n%s", err, said, before, after)
	}
	clear(w.faults)
	if err := w.sweep(all); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(o.Out); err != nil || !bytes.HasPrefix(after, before) || !strings.Contains(string(after), ",Tree,LL,") {
		t.Errorf("%v\n%s", err, after)
	}
}

func TestRounds(t *testing.T) {
	w := newWorld(t)
	w.factor = []float64{1.5, 1, 0.9}
	o := w.options()
	o.Rounds = 3
	if err := w.sweep(o); err != nil {
		t.Fatal(err)
	}
	if w.opened != 3 {
		t.Errorf("ranks were started %d times for 3 rounds", w.opened)
	}
	w.same(o.Out) // the median of the three
}

func TestWornCommunicators(t *testing.T) {
	w := newWorld(t)
	w.wornAt = 100
	o := w.options()
	if err := w.sweep(o); err != nil {
		t.Fatal(err)
	}
	if most := total(w)/100 + 1; w.opened < 5 || w.opened > most {
		t.Errorf("ranks were started %d times for %d points", w.opened, total(w))
	}
	w.same(o.Out)
}

func TestOtherSweepsFiles(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	o.Collectives, o.Sizes = []string{"AllReduce"}, []uint64{1024}
	if err := w.sweep(o); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, o Options, says ...string) {
		t.Helper()
		err := w.sweep(o)
		if !errors.Is(err, errOther) {
			t.Fatalf("%s: %v", what, err)
		}
		for _, text := range append(says, o.Out, "--restart") {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %q does not say %q", what, err, text)
			}
		}
	}
	other := o
	other.Load = LoadCPU
	refused("another load", other, "condition", "quiet", "cpu-load")
	other = o
	other.Budget *= 2
	refused("another budget", other, "budget_us")
	other = o
	other.Settings = []string{"NCCL_NVLS_ENABLE=0"}
	refused("another environment", other, "environment", "NCCL_NVLS_ENABLE=0")
	// More sizes and choices are the same sweep.
	other = o
	other.Sizes = []uint64{1024, 4096}
	if err := w.sweep(other); err != nil {
		t.Error(err)
	}
	if err := os.Remove(pathsOf(o.Out).description); err != nil {
		t.Fatal(err)
	}
	refused("no description", o, "nobody knows")
	other.Restart, other.Load = true, LoadCPU
	if err := w.sweep(other); err != nil {
		t.Error(err)
	}
	if got := readTable(t, o.Out); got.Condition != "cpu-load" {
		t.Errorf("begun anew: %s", got.Condition)
	}
}

// Where the points of a table are gone, or other files have the names of a sweep's, nothing is written over.
func TestNothingIsWrittenOver(t *testing.T) {
	w := newWorld(t)
	o := w.options()
	o.Collectives, o.Sizes = []string{"AllReduce"}, []uint64{1024}
	if err := w.sweep(o); err != nil {
		t.Fatal(err)
	}
	p := pathsOf(o.Out)
	left := func(what, path, want string, err error, says ...string) {
		t.Helper()
		if text, bad := os.ReadFile(path); bad != nil || string(text) != want {
			t.Errorf("%s: %s holds %q, %v", what, path, text, bad)
		}
		for _, text := range append(says, path, "--restart", "another --out") {
			if !errors.Is(err, errOther) || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v does not say %q", what, err, text)
			}
		}
	}
	table, err := os.ReadFile(p.table)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(p.journal); err != nil {
		t.Fatal(err)
	}
	left("no points", p.table, string(table), w.sweep(o), p.journal)
	o.Out = filepath.Join(t.TempDir(), "package.csv")
	p = pathsOf(o.Out)
	for _, text := range []string{`{"name": "somebody's"}`, "no JSON"} {
		if err := os.WriteFile(p.description, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		left("somebody's file", p.description, text, w.sweep(o), "not understood")
	}
	o.Restart = true
	if err := w.sweep(o); err != nil {
		t.Error(err)
	}
}

func TestJournalThatCannotBeWritten(t *testing.T) {
	if _, err := openJournal(filepath.Join(t.TempDir(), "missing", "t.points.jsonl"), true); err == nil || !strings.Contains(err.Error(), "--out: ") || !strings.Contains(err.Error(), "in a folder that exists") {
		t.Error(err)
	}
}
