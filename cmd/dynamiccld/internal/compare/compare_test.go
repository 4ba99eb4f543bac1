package compare

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"dynamiccl/agents"
	"dynamiccl/cmd/internal/tracefile"
	"dynamiccl/tuner/tunersim"
)

const header = "machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us,threads,backend\n"

// rows is a machine and actions that no recorded table has.
func rows(condition, fast, slow string) string {
	out := header
	for _, r := range []string{"Reduce,512,default,-,-,-,20,-,-", "Reduce,512,gin,-,-,4," + fast + ",-,gdaki", "Reduce,512,gin,-,-,4," + slow + ",-,proxy",
		"AllGather,3000000,default,-,-,-,200,-,-", "AllGather,3000000,collective,PAT,Simple,3,150,96,-"} {
		out += "16xZ9,3.1.4,16,2,roce," + condition + "," + r + "\n"
	}
	return out
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func config(t *testing.T, seeds, workers int, learners ...string) Config {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "idle.csv", rows("idle", "9", "14"))
	write(t, dir, "busy.csv", rows("busy", "33", "12"))
	traces, err := Traces([]string{filepath.Join(dir, "*.csv"), filepath.Join(dir, "idle.csv")}, silent(t))
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Seeds: seeds, Workers: workers}
	cfg.Calls, cfg.Noise, cfg.Guard = 96, tunersim.NoiseOf(0.05), agents.DefaultGuardConfig()
	if cfg.Scenarios, err = tunersim.Scenarios(traces, false); err != nil {
		t.Fatal(err)
	}
	if cfg.Design, err = agents.NewDesign(agents.DefaultParams()); err != nil {
		t.Fatal(err)
	}
	for _, name := range learners {
		c := tunersim.Contender{Name: name}
		if !slices.Contains(tunersim.KnowingLearners(), name) {
			if c.New, err = agents.New(name); err != nil {
				t.Fatal(err)
			}
		}
		cfg.Contenders = append(cfg.Contenders, c)
	}
	return cfg
}

func run(t *testing.T, cfg Config) []Result {
	t.Helper()
	results, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func TestResultsDependOnNoWorkersAndNoOrder(t *testing.T) {
	one := run(t, config(t, 3, 1, "ucb", "oracle", "coordinate-descent"))
	calls := 0
	cfg := config(t, 3, 7, "coordinate-descent", "ucb", "oracle")
	cfg.Progress = func(done, all int) {
		if calls++; done != calls || all != 36 {
			t.Errorf("progress %d of %d at report %d", done, all, calls)
		}
	}
	if many := run(t, cfg); !reflect.DeepEqual(one, many) || calls != 36 {
		t.Errorf("%d results with one worker, other %d with seven, %d reports", len(one), len(many), calls)
	}
	for _, r := range one {
		if r.All.Learner == tunersim.LearnerOracle && (r.All.Regret != 0 || r.All.CostOverOracle != 1) {
			t.Errorf("%+v", r.All)
		}
	}
	if alone := run(t, config(t, 3, 2, "oracle")); !reflect.DeepEqual(alone, slices.DeleteFunc(one, func(r Result) bool { return r.All.Learner != "oracle" })) {
		t.Error("the other learners change the oracle's results")
	}
}

func TestSummaryMarksTheBest(t *testing.T) {
	blocks := Summary(run(t, config(t, 4, 2, "ucb", "default", "oracle")))
	var names []string
	for _, b := range blocks {
		names = append(names, b.Trace+" "+b.Condition)
		if len(b.Lines) != 3 || b.Lines[0].Learner != "oracle" || b.Seeds != 4 || b.Calls != 96 || b.Buckets != 2 {
			t.Fatalf("%+v", b)
		}
		for _, l := range b.Lines {
			if l.Best != (l.Learner == "ucb") || l.Knows == l.Best {
				t.Errorf("%s: %+v", b.Trace, l)
			}
			if l.Learner == "default" && (l.CostOverDefault != Figure{Mean: 1}) {
				t.Errorf("default costs %+v of itself", l.CostOverDefault)
			}
		}
	}
	if want := []string{"busy busy", "idle idle", "idle busy->idle", "busy idle->busy"}; !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

// Student's 97.5% quantile at 2 degrees of freedom is 4.302653.
func TestFigureOf(t *testing.T) {
	if f := figureOf([]float64{1, 2, 3}); f.Mean != 2 || math.Abs(f.Half-4.302653/math.Sqrt(3)) > 1e-5 {
		t.Errorf("%+v", f)
	}
	if f := figureOf([]float64{7}); f != (Figure{Mean: 7}) {
		t.Errorf("%+v", f)
	}
}

func TestRunStops(t *testing.T) {
	cfg := config(t, 50, 2, "ucb")
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Progress = func(int, int) { cancel() }
	if _, err := Run(ctx, cfg); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "of 200 runs") {
		t.Errorf("cancelled: %v", err)
	}
	cfg = config(t, 1, 2)
	cfg.Contenders = []tunersim.Contender{{Name: "nobody"}}
	if _, err := Run(t.Context(), cfg); !errors.Is(err, tunersim.ErrBadComparison) {
		t.Errorf("%v", err)
	}
}

func TestTraces(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, d), "t.csv", rows("idle", "9", "14"))
	}
	traces, err := Traces([]string{filepath.Join(dir, "*", "t.csv")}, silent(t))
	if err != nil || len(traces) != 2 || traces[0].Name != filepath.Join(dir, "a", "t") || traces[1].Name != filepath.Join(dir, "b", "t") {
		t.Errorf("%v, %v", traces, err)
	}
	write(t, dir, "bad.csv", rows("idle", "9", "soon"))
	write(t, dir, "all2all.csv", header+"m,2,2,1,x,quiet,AllToAll,512,default,-,-,-,20,-,-\n")
	write(t, dir, "empty.csv", "")
	for pattern, want := range map[string]string{"none*.csv": "names no file", "[": "syntax error", "bad.csv": `bad.csv: line 4: median_us "soon"`,
		"all2all.csv": "all2all.csv: no measurements", "empty.csv": "empty.csv: the file is empty", "a": "is a directory"} {
		if _, err := Traces([]string{filepath.Join(dir, pattern)}, silent(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", pattern, err, want)
		}
	}
	if _, err := Traces(nil, silent(t)); !errors.Is(err, tracefile.ErrNoTraces) {
		t.Errorf("%v", err)
	}
}

// Rows that no learner can play are not left out without a word.
func TestTracesSayWhatIsLeftOut(t *testing.T) {
	dir, said := t.TempDir(), ""
	all2all := "16xZ9,3.1.4,16,2,roce,idle,AllToAll,512,default,-,-,-,20,-,-\n"
	write(t, dir, "t.csv", rows("idle", "9", "14")+all2all+all2all)
	if _, err := Traces([]string{filepath.Join(dir, "t.csv")}, func(text string) { said += text + "\n" }); err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(dir, "t.csv") + ": AllToAll is left out (rows: 2), since NCCL's choice of it is all that was measured\n"; said != want {
		t.Errorf("said %q, want %q", said, want)
	}
}

func silent(t *testing.T) func(string) {
	return func(text string) { t.Errorf("said %q", text) }
}
