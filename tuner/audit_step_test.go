package tuner_test

import (
	"fmt"
	"testing"

	"dynamiccl/agents"
	"dynamiccl/tuner"
)

func TestScratch(t *testing.T) {
	q := step{join: beside}
	for i := range 4 {
		q.calls = append(q.calls, stepCall{16 << 20, 0.56e6 + 0.16e6*float64(i)})
	}
	ser := besideStep()
	ser.join, ser.channels = serial, 4
	bl := besideStep()
	bl.join = backlog
	for name, s := range map[string]step{"beside": besideStep(), "queue": q, "serial": ser, "backlog": bl} {
		plain := truth(t, s)
		for _, learner := range []string{"lstm", agents.NameUCB, "coordinate-descent"} {
			for seed := uint64(1); seed <= 3; seed++ {
				out := ""
				for _, guard := range []bool{false, true} {
					p := playOf(t, learner, tuner.Config{Explore: true, Seed: seed, StepGuard: guard}, s)
					p.single = true
					mean := p.run(12500) / plain
					v := p.core.Buckets()[0]
					tot := p.core.Totals()
					out += fmt.Sprintf("; guard %t: %v truth %.4f mean %.4f audits %d vetoes %d alarms %d plans %d samples %d %v", guard, v.Choice, truth(t, s, v)/plain, mean, tot.Audits, tot.Vetoes, tot.Alarms, tot.Plans, p.samples, v.Audit)
				}
				t.Logf("%s %s %d%s", name, learner, seed, out)
			}
		}
	}
}
