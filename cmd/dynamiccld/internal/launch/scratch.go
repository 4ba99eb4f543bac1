package launch

import (
	"fmt"
	"strconv"
)

// ScratchVariable is how much GPU memory of a communicator our kernels use, in MiB, alike on all ranks (kernels/host/memory.c).
const ScratchVariable = "DYNAMICCL_SCRATCH_MIB"

// What kernels/host/memory.c takes.
const (
	DefaultScratchMiB = 64
	MostScratchMiB    = 4096
)

// ScratchMiB is the value of a flag: 0 is not given, so that the environment, or the default, holds.
type ScratchMiB int

// Set reads a flag. What a rank would not take is refused here, where somebody reads it.
func (m *ScratchMiB) Set(s string) error {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n < 1 || n > MostScratchMiB {
		return fmt.Errorf("want whole MiB, 1 to %d", MostScratchMiB)
	}
	*m = ScratchMiB(n)
	return nil
}

// String is "" where it is not given.
func (m *ScratchMiB) String() string {
	if *m == 0 {
		return ""
	}
	return strconv.Itoa(int(*m))
}

// Type is what help calls the value.
func (*ScratchMiB) Type() string { return "MiB" }
