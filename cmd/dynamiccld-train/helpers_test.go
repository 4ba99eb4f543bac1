package main

import (
	"bytes"
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"dynamiccl/agents"
	"dynamiccl/models/train"
	"dynamiccl/tuner/tunersim"
)

// asProgram makes the test binary be the program, for tests of signals.
const asProgram = "DYNAMICCL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main() // it exits
	}
	os.Exit(m.Run())
}

const measurements = "../../tuner/tunersim/testdata/measurements/"

// twoTables are small tables of one machine each.
const twoTables = measurements + "h200x2-*-quiet.csv"

// fake is a trainer that learns nothing, quickly.
type fake struct {
	recipe  train.Recipe
	tables  []*tunersim.Table
	update  int
	step    func(update int) (loss, norm float64, err error)
	curve   []train.Point
	best    float64
	hasBest bool
	origin  train.Origin
}

func (f *fake) Step() (loss, norm float64, err error) {
	f.update++
	if f.step != nil {
		return f.step(f.update)
	}
	return 1 / float64(f.update), 2, nil
}

func (f *fake) Validate(loss, norm float64) float64 {
	score := 100 - float64(f.update)
	if !f.hasBest || score < f.best {
		f.best, f.hasBest = score, true
	}
	f.curve = append(f.curve, train.Point{Update: f.update, Loss: loss, Norm: norm, Regret: score})
	return score
}

func (f *fake) Checkpoint() ([]byte, error) { return []byte(strconv.Itoa(f.update)), nil }

func (f *fake) Resume(file []byte) error {
	var err error
	f.update, err = strconv.Atoi(string(file))
	return err
}

func (f *fake) Best() (*agents.PolicyWeights, float64) {
	w := agents.RandomPolicyWeights(rand.New(rand.NewPCG(f.recipe.Seed, 9)))
	if !f.hasBest {
		return w, math.Inf(1)
	}
	return w, f.best
}

func (f *fake) Update() int          { return f.update }
func (f *fake) Done() bool           { return f.update >= f.recipe.Updates }
func (f *fake) Curve() []train.Point { return f.curve }
func (f *fake) Origin() train.Origin { return f.origin }

// world is where one command runs.
type world struct {
	t      *testing.T
	dir    string
	env    map[string]string
	now    func() time.Time
	change func(*fake)                                                 // prepares the fake trainer
	start  func(train.Recipe, []*tunersim.Table, int) (trainer, error) // instead of the fake
	wrap   func(cancel context.CancelFunc, t trainer) trainer          // around whichever
	fakes  []*fake
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), env: map[string]string{}, now: func() time.Time { return time.Unix(1_767_225_600, 0) }} // 2026-01-01
	w.start = func(r train.Recipe, tables []*tunersim.Table, _ int) (trainer, error) {
		f := &fake{recipe: r, tables: tables}
		if w.change != nil {
			w.change(f)
		}
		w.fakes = append(w.fakes, f)
		return f, nil
	}
	return w
}

// run runs a command line; $DIR is the world's folder.
func (w *world) run(line string) (stdout, stderr string, code int) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out, errs bytes.Buffer
	p := &program{stdout: &out, stderr: &errs, getenv: func(n string) string { return w.env[n] }, now: w.now, commit: "c0ffee",
		start: func(r train.Recipe, tables []*tunersim.Table, threads int) (trainer, error) {
			t, err := w.start(r, tables, threads)
			if err == nil && w.wrap != nil {
				t = w.wrap(cancel, t)
			}
			return t, err
		}}
	code = p.main(ctx, strings.Fields(strings.ReplaceAll(line, "$DIR", w.dir)))
	return out.String(), errs.String(), code
}

// must runs a command line that succeeds.
func (w *world) must(line string) {
	w.t.Helper()
	if _, stderr, code := w.run(line); code != exitOK {
		w.t.Fatalf("%s: exit %d: %s", line, code, stderr)
	}
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) read(name string) []byte {
	w.t.Helper()
	data, err := os.ReadFile(w.path(name))
	if err != nil {
		w.t.Fatal(err)
	}
	return data
}

func (w *world) has(name string) bool {
	_, err := os.Stat(w.path(name))
	return err == nil
}

// policy decodes a policy file.
func (w *world) policy(name string) agents.PolicyCard {
	w.t.Helper()
	_, card, err := agents.DecodePolicy(w.read(name))
	if err != nil {
		w.t.Fatalf("%s: %v", name, err)
	}
	return card
}

// stopper cancels after some updates, as a signal does.
type stopper struct {
	trainer
	after  int
	cancel context.CancelFunc
}

func (s stopper) Step() (loss, norm float64, err error) {
	loss, norm, err = s.trainer.Step()
	if s.Update() == s.after {
		s.cancel()
	}
	return loss, norm, err
}

func stopAfter(update int) func(context.CancelFunc, trainer) trainer {
	return func(cancel context.CancelFunc, t trainer) trainer { return stopper{t, update, cancel} }
}
