package live

import (
	"os"
	"path/filepath"
	"testing"
)

// Steps of one call, for which compute waits: the steps are compared, and what was chosen stays, for it makes them shorter.
func TestStepsAreCompared(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--learner", "coordinate-descent", "--tick", "2ms")
	r.start()
	steps := filepath.Join(t.TempDir(), "steps")
	if err := os.WriteFile(steps, []byte("AllReduce,262144,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := r.ranks("steps", []Phase{{quiet, 40_000}}, "--workload", steps, "--gap", "100", "--noise", "0.02")
	run.Rate = 6000
	r.begin(run)
	rep := r.finish(run)
	s := r.status()
	t.Logf("%.3f of the default; %+v", rep.Phases[0].OverDefault(), s.Core)
	if s.Core.Audits == 0 || s.Core.Vetoes != 0 || s.Core.Disagreed != 0 || rep.Phases[0].OverDefault() > 0.75 {
		t.Errorf("%.3f of the default; %+v", rep.Phases[0].OverDefault(), s.Core)
	}
}
