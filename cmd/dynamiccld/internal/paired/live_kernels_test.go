package paired

import (
	"strings"
	"testing"
)

// Arms whose ranks refuse our kernels are compared without, which is said once for all of them, and not of arms that are to have none.
func TestLiveRefusedKernels(t *testing.T) {
	for arms, times := range map[string]int{"plain,run,plugin": 1, "plain,run+DYNAMICCL_NO_KERNELS=1": 0} {
		m := newMachine(t, "h200x4-nvlink-quiet", "DYNAMICCL_NO_KERNELS=", "DYNAMICCL_KERNELS=/nope", "FAKEGPU_OPTIONS=--nccl 2.28.9")
		said, code := m.bench("", 0, "--arms", arms, "--collectives", "AllReduce", "--sizes", "1K", "--phases", "quiet:1s")
		if code != 0 || strings.Count(said, "DYNAMICCL_KERNELS names /nope, which cannot be read (no such file or directory): ranks have none of our kernels") != times {
			t.Errorf("arms %s: exit code %d, want it said %d times:\n%s", arms, code, times, said)
		}
	}
}
