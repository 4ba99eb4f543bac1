package models

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"dynamiccl/agents"
	"dynamiccl/tuner/tunersim"
)

// What the policies of heldout/ do on the tables that they never saw, with 5% noise: what the card says (models/README.md),
// and some room for other rounding. Regret is after 64 calls, over that of ucb in the same games; the worst window is over
// NCCL's default.
func TestHeldOutFigures(t *testing.T) {
	const seeds = 5
	design, err := agents.NewDesign(agents.DefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	ucb, err := New("ucb")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ regretOverUCB, speedAt32, worstWindow float64 }{
		"h200x4-socket-2nodes-quiet":        {0.80, 0.98, 1.06},
		"h200x4-socket-2nodes-network-load": {0.90, 0.98, 1.04},
		"h200x4-socket-2nodes-cpu-load":     {0.90, 0.92, 1.09},
		"h200x8-nvlink":                     {0.72, 0.985, 1.04},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenarios, err := tunersim.Scenarios([]tunersim.Trace{{Name: name, Table: Recorded(t, name)}}, false)
			if err != nil {
				t.Fatal(err)
			}
			own, err := Open(filepath.Join("heldout", name+".dynp"))
			if err != nil {
				t.Fatal(err)
			}
			policy, err := own.New(agents.NameLSTM)
			if err != nil {
				t.Fatal(err)
			}
			var of [2]tunersim.Score
			for i, learner := range []agents.NewLearner{policy, ucb} {
				c := tunersim.Comparison{Calls: 128, Noise: tunersim.NoiseOf(0.05), Guard: agents.DefaultGuardConfig(), Design: design}
				for seed := range uint64(seeds) {
					played, err := c.Play(context.Background(), scenarios[0], tunersim.Contender{Name: "x", New: learner}, seed+1)
					if err != nil {
						t.Fatal(err)
					}
					all, _ := played.Scores()
					of[i].Regret64 += all.Regret64 / seeds
					of[i].SpeedAt32 += all.SpeedAt32 / seeds
					of[i].WorstWindow100 += all.WorstWindow100 / seeds
				}
			}
			ratio := of[0].Regret64 / of[1].Regret64
			t.Logf("regret %.2f, ucb %.2f, ratio %.2f; speed after 32 calls %.3f; worst 100 calls %.3f", of[0].Regret64, of[1].Regret64, ratio,
				of[0].SpeedAt32, of[0].WorstWindow100)
			if ratio > want.regretOverUCB {
				t.Errorf("regret %.2f of ucb's, want at most %.2f", ratio, want.regretOverUCB)
			}
			if of[0].SpeedAt32 < want.speedAt32 {
				t.Errorf("%.3f of the best speed after 32 calls, want %.3f", of[0].SpeedAt32, want.speedAt32)
			}
			if of[0].WorstWindow100 > want.worstWindow {
				t.Errorf("worst 100 calls cost %.3f of the default, want at most %.3f", of[0].WorstWindow100, want.worstWindow)
			}
		})
	}
}

// heldout.sh plays nothing where a variant does not exist, and puts its policies where the user stands. The program that
// it calls is one that notes its arguments and fails, so it gets no further than the first game.
func TestHeldOutScript(t *testing.T) {
	script, err := os.ReadFile("heldout.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		dir  bool // is made
		want string
	}{
		{[]string{"some/where", "seed1", "without-memory"}, 1, true, ""},
		{[]string{"some/where", "seed1", "luck"}, 2, false, "no variant luck"},
		{nil, 2, false, "usage:"},
	} {
		root, user := t.TempDir(), t.TempDir()
		for file, text := range map[string]string{"models/heldout.sh": string(script), "bin/dynamiccld": "#!/bin/sh\necho \"$*\" >>\"$0.log\"\nexit 1\n"} {
			path := filepath.Join(root, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o700)); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("bash", append([]string{filepath.Join(root, "models", "heldout.sh")}, c.args...)...)
		cmd.Dir = user
		out, err := cmd.CombinedOutput()
		exit := new(exec.ExitError)
		if !errors.As(err, &exit) || exit.ExitCode() != c.code || !strings.Contains(string(out), c.want) {
			t.Errorf("%q: %v: %s", c.args, err, out)
		}
		if _, err := os.Stat(filepath.Join(user, "some", "where")); (err == nil) != c.dir {
			t.Errorf("%q: its folder: %v", c.args, err)
		}
		if _, err := os.Stat(filepath.Join(root, "bin", "dynamiccld.log")); (err == nil) != c.dir {
			t.Errorf("%q: games: %v", c.args, err)
		}
	}
}
