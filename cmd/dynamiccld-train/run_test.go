package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"image/png"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/agents"
	"dynamiccl/models/train"
)

func TestWrongFlags(t *testing.T) {
	w := newWorld(t)
	for line, want := range map[string]string{
		"":                                               "nothing to learn from",
		"tables.csv":                                     "comes after --traces", // the shell expanded a pattern
		"--traces nowhere/*.csv":                         "names no file",
		"--traces [":                                     "syntax error in pattern",
		"--frobnicate":                                   "unknown flag",
		"--synthetic 1 --updates 0":                      "0 updates",
		"--synthetic 1 --updates 5 --pretrain 6":         "6 of 5 updates",
		"--synthetic 2":                                  "synthetic part 2",
		"--synthetic 1 --rate 0":                         "rate 0",
		"--synthetic 1 --rate NaN":                       "rate NaN",
		"--synthetic 1 --objective luck":                 "unknown objective \"luck\" (one of imitation, q-learning, actor-critic)",
		"--synthetic 1 --without memory,sleep":           `--without "sleep": want some of memory,counter,signal,cusum,peers`,
		"--synthetic 1 --threads 0":                      "--threads 0",
		"--synthetic 1 --validate-every 0":               "--validate-every 0",
		"--synthetic 1 --out=":                           "--out is empty",
		"--synthetic 1 --out $DIR/a --checkpoint $DIR/a": "the same file",
		"--synthetic 1 --hold-out socket":                "--hold-out leaves out tables",
		"--synthetic 1 --resume --out $DIR/new":          "there is no checkpoint",
		"--traces " + twoTables + " --out $DIR/new --hold-out socket --hold-out ib": `--hold-out "ib" matches no table; there are: 2xh200/nvlink/quiet h200x2-nvlink-quiet.csv; 2xh200/socket`,
		"--traces " + twoTables + " --out $DIR/new --hold-out h200":                 "leaves no table",
	} {
		line = strings.TrimSpace(line)
		if _, stderr, code := w.run(line); code != exitUsage || !strings.Contains(strings.ReplaceAll(stderr, "come after", "comes after"), want) {
			t.Errorf("%q: exit %d: %swant %q", line, code, stderr, want)
		}
	}
	if len(w.fakes) > 0 {
		t.Error("a wrong command line began to train")
	}
	w.env["SOURCE_DATE_EPOCH"] = "yesterday"
	if _, stderr, code := w.run("--synthetic 1 --out $DIR/p"); code != exitUsage || !strings.Contains(stderr, "SOURCE_DATE_EPOCH") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestCard(t *testing.T) {
	w := newWorld(t)
	line := "--traces " + twoTables + " --traces " + measurements + "h200x2-nvlink-quiet* --hold-out SOCKET --updates 350 --seed 4 --without memory,peers --out $DIR/p"
	w.must(line)
	f := w.fakes[0]
	if len(f.tables) != 1 || f.tables[0].Shape.Transport != "nvlink" {
		t.Errorf("%d tables are learned from", len(f.tables))
	}
	shipped := train.DefaultRecipe()
	want := shipped
	want.Seed, want.Updates, want.Pretrain = 4, 350, shipped.Pretrain*350/shipped.Updates
	want.Without = agents.Without{Memory: true, Peers: true}
	if f.recipe != want {
		t.Errorf("recipe %+v, want %+v", f.recipe, want)
	}
	c := w.policy("p")
	if c.Name != agents.NameLSTM || c.Date != "2026-01-01" || c.Commit != "c0ffee" || c.Seed != 4 || c.Updates != 350 || c.Without != want.Without ||
		c.Horizon != agents.DefaultPolicyOptions().Horizon || c.Results["validation_regret"] != 100-350 {
		t.Errorf("card %+v", c)
	}
	if !slices.Equal(c.Data, []string{"h200x2-nvlink-quiet", "synthetic fabrics of tunersim.RandomMachine"}) {
		t.Errorf("data %q", c.Data)
	}
	if got := fmt.Sprint(c.Recipe); got != fmt.Sprint(map[string]any{"held_out": []string{"h200x2-socket-2nodes-quiet"}, "objective": "imitation",
		"pretrain": want.Pretrain, "rate": want.Rate, "synthetic": want.Synthetic, "validate_every": 300, "without": []string{"memory", "peers"}}) {
		t.Errorf("recipe %s", got)
	}
	w.env["SOURCE_DATE_EPOCH"] = "86400"
	w.must(line)
	if c := w.policy("p"); c.Date != "1970-01-02" {
		t.Errorf("date %q", c.Date)
	}
}

// What pre-training had that the run does not is on the card.
func TestCardSaysWhereARunComesFrom(t *testing.T) {
	for want, from := range map[string]train.Origin{
		"<nil> <nil>":     {},
		"<nil> <nil> ":    {Objective: train.ActorCritic}, // there and back again
		"imitation <nil>": {Objective: train.Imitation},
		"<nil> true":      {OtherTables: true},
		"q-learning true": {Objective: train.QLearning, OtherTables: true},
	} {
		w := newWorld(t)
		line := "--synthetic 1 --updates 300 --objective actor-critic --out $DIR/p "
		w.wrap = stopAfter(20)
		w.run(line)
		w.wrap = nil
		w.change = func(f *fake) { f.origin = from }
		w.must(line + "--resume")
		r := w.policy("p").Recipe
		if got := fmt.Sprint(r["pretrained_by"], " ", r["begun_with_other_tables"]); got != strings.TrimSpace(want) {
			t.Errorf("%+v: %s", from, got)
		}
	}
}

// Defaults are the shipped recipe.
func TestShippedRecipe(t *testing.T) {
	w := newWorld(t)
	w.must("--traces " + twoTables + " --out $DIR/p")
	if w.fakes[0].recipe != train.DefaultRecipe() {
		t.Errorf("%+v", w.fakes[0].recipe)
	}
}

func TestDivergence(t *testing.T) {
	for name, values := range map[string][2]float64{"loss": {math.NaN(), 1}, "gradient": {1, math.Inf(1)}} {
		w := newWorld(t)
		at := 250
		w.change = func(f *fake) {
			f.step = func(update int) (loss, norm float64, err error) {
				if update == at {
					return values[0], values[1], nil
				}
				return 1, 1, nil
			}
		}
		_, stderr, code := w.run("--synthetic 1 --updates 400 --validate-every 200 --out $DIR/p")
		if code != exitFailed || !strings.Contains(stderr, "update 250: loss") || !strings.Contains(stderr, "the best weights so far are in") {
			t.Errorf("%s: exit %d: %s", name, code, stderr)
		}
		if regret := w.policy("p").Results["validation_regret"]; regret != 100-200 {
			t.Errorf("%s: the policy of regret %g is kept", name, regret)
		}
		at = 20
		_, stderr, code = w.run("--synthetic 1 --updates 400 --out $DIR/q --checkpoint $DIR/c")
		if code != exitFailed || !strings.Contains(stderr, "no policy is written") || w.has("q") {
			t.Errorf("%s before any validation: exit %d: %s", name, code, stderr)
		}
	}
	w := newWorld(t)
	w.change = func(f *fake) { f.step = func(int) (float64, float64, error) { return 0, 0, errors.New("graph broke") } }
	if _, stderr, code := w.run("--synthetic 1 --out $DIR/p"); code != exitFailed || !strings.Contains(stderr, "graph broke") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

func TestProgressLines(t *testing.T) {
	w := newWorld(t)
	now := time.Unix(0, 0)
	w.now = func() time.Time { return now }
	w.change = func(f *fake) {
		f.step = func(int) (float64, float64, error) {
			now = now.Add(500 * time.Millisecond)
			return 1.5, 1, nil
		}
	}
	stdout, stderr, _ := w.run("--synthetic 1 --updates 50 --validate-every 30 --out $DIR/p")
	want := []string{
		"dynamiccld train: 0 tables, 0 held out, 50 updates",
		"update 20 of 50, 2.0 a second, loss 1.5000, best validation regret not yet, 15s left",
		"update 40 of 50, 2.0 a second, loss 1.5000, best validation regret 70.000, 5s left", ""}
	if got := strings.Split(stderr, "\n"); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if want := w.path("p") + " written: 50 of 50 updates, validation regret 50.000\n"; stdout != want {
		t.Errorf("%q", stdout)
	}
	if _, stderr, _ := w.run("--synthetic 1 --updates 50 --quiet --out $DIR/p"); stderr != "" {
		t.Errorf("--quiet: %s", stderr)
	}
}

func TestCurve(t *testing.T) {
	w := newWorld(t)
	w.change = func(f *fake) { f.curve = []train.Point{{Update: 1, Loss: math.NaN(), Norm: math.Inf(1), Regret: 3}} }
	w.must("--synthetic 1 --updates 300 --validate-every 100 --out $DIR/p --curve $DIR/new/curve")
	rows, err := csv.NewReader(bytes.NewReader(w.read("new/curve/training.csv"))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 5 || !slices.Equal(rows[0], []string{"update", "loss", "gradient_norm", "validation_regret"}) || !slices.Equal(rows[1], []string{"1", "NaN", "+Inf", "3"}) ||
		rows[4][0] != "300" || rows[4][2] != "2" || rows[4][3] != "-200" {
		t.Errorf("%q", rows)
	}
	if img, err := png.Decode(bytes.NewReader(w.read("new/curve/training.png"))); err != nil || img.Bounds().Dx() < 400 {
		t.Errorf("picture: %v", err)
	}
	if _, err := curvePNG(nil); err != nil {
		t.Errorf("a curve without points: %v", err)
	}
}
