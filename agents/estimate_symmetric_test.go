package agents

import (
	"math"
	"testing"

	"dynamiccl/actions"
)

// What is expected of symmetric kernels is near what they take, and none that is better than the default would be left out.
func TestSymmetricOnTable(t *testing.T) {
	n, squares, before := 0.0, 0.0, 0.0
	for b, costs := range readKernels(t, "gpu-sweep-registered-2gpus-nccl2.32.3").costs {
		set := []actions.Action{actions.Default}
		for a := range costs {
			if a.Path == actions.PathSymmetric {
				set = append(set, a)
			}
		}
		m := newCostModel(set, b)
		for i := 1; i < len(set); i++ {
			mean, _ := m.predict(i)
			over := costs[set[i]]
			n, squares, before = n+1, squares+(mean-over)*(mean-over), before+over*over
			if over < 0.1 && mean > DefaultGuardConfig().Hopeless {
				t.Errorf("%v %s: %.2f times the default, expected at %.1f", b, set[i], math.Exp(over), math.Exp(mean))
			}
		}
	}
	t.Logf("%.0f kernels, rms %.2f; %.2f if nothing is expected", n, math.Sqrt(squares/n), math.Sqrt(before/n))
	if n < 40 || squares > before/9 {
		t.Errorf("%.0f kernels, rms %.2f, %.2f if nothing is expected", n, math.Sqrt(squares/n), math.Sqrt(before/n))
	}
}
