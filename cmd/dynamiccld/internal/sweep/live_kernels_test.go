package sweep

import (
	"strings"
	"testing"
)

// Kernels that ranks refuse are missing in the table, so that is said.
func TestLiveRefusedKernels(t *testing.T) {
	m := newMachine(t, "h200x4-nvlink-quiet", "DYNAMICCL_NO_KERNELS=", "DYNAMICCL_KERNELS=/nope", "FAKEGPU_OPTIONS=--nccl 2.28.9")
	said := m.must("--ranks", "4", "--collectives", "AllReduce", "--sizes", "1K", "--out", "t.csv")
	if strings.Count(said, "DYNAMICCL_KERNELS names /nope, which cannot be read (no such file or directory): ranks have none of our kernels") != 1 {
		t.Errorf("it does not say once that the kernels are not there:\n%s", said)
	}
	m.alone()
}
