package models

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"

	"dynamiccl/agents"
	"dynamiccl/tuner/tunersim"
)

// What it is worth to policies to know what connects the ranks: calls of the best lost in the first 64, mean over buckets and seeds,
// with transport and NICs hidden from the learner, and from nothing else, and shown; by the shipped policy and by the one that
// never saw the table (models/README.md).
//
//	go test ./models -run '^$' -bench TransportShown -benchtime 1x
func BenchmarkTransportShown(b *testing.B) {
	const seeds = 20
	design, err := agents.NewDesign(agents.DefaultParams())
	if err != nil {
		b.Fatal(err)
	}
	shipped, err := New(agents.NameLSTM)
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"h200x4-socket-2nodes-quiet", "h200x4-socket-2nodes-network-load", "h200x4-socket-2nodes-cpu-load", "h200x8-nvlink",
		"h200x4-nvlink-quiet", "h200x2-socket-2nodes-quiet"} {
		policies := map[string]agents.NewLearner{"shipped": shipped}
		own, err := Open(filepath.Join("heldout", name+".dynp"))
		if err == nil {
			policies["heldout"], err = own.New(agents.NameLSTM)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // not every table has one
			b.Fatal(err)
		}
		for policy, learner := range policies {
			b.Run(name+"/"+policy, func(b *testing.B) {
				scenarios, err := tunersim.Scenarios([]tunersim.Trace{{Name: name, Table: Recorded(b, name)}}, false)
				if err != nil {
					b.Fatal(err)
				}
				hidden := func(t agents.Task) agents.Learner {
					t.Topology.Transport, t.Topology.NICs = "", 0
					return learner(t)
				}
				for b.Loop() {
					for noise, sigma := range map[string]float64{"5%": 0.05, "15%": 0.15} {
						c := tunersim.Comparison{Calls: 64, Noise: tunersim.NoiseOf(sigma), Guard: agents.DefaultGuardConfig(), Design: design}
						for how, l := range map[string]agents.NewLearner{"hidden": hidden, "shown": learner} {
							lost := 0.0
							for seed := range uint64(seeds) {
								played, err := c.Play(context.Background(), scenarios[0], tunersim.Contender{Name: how, New: l}, seed+1)
								if err != nil {
									b.Fatal(err)
								}
								all, _ := played.Scores()
								lost += all.Regret64 / seeds
							}
							b.ReportMetric(lost, how+"-"+noise+"-lost/64")
						}
					}
				}
			})
		}
	}
}
