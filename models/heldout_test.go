package models

import (
	"context"
	"errors"
	"os"
	"path/filepath"
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
			f, err := os.Open(filepath.Join("..", "tuner", "tunersim", "testdata", "measurements", name+".csv"))
			if err != nil {
				t.Fatal(err)
			}
			table, err := tunersim.ReadTable(f)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			scenarios, err := tunersim.Scenarios([]tunersim.Trace{{Name: name, Table: table}}, false)
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
