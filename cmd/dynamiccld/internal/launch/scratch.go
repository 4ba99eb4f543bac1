package launch

import (
	"fmt"
	"strconv"
)

// How much GPU memory our kernels use, in MiB.
const (
	ScratchVariable      = "DYNAMICCL_SCRATCH_MIB"       // of a communicator, alike on all ranks (kernels/host/memory.c)
	ScratchTotalVariable = "DYNAMICCL_SCRATCH_TOTAL_MIB" // of all communicators of a process on one GPU (kernels/host/room.c)
)

// What ranks take.
const (
	DefaultScratchMiB      = 64
	MostScratchMiB         = 4096
	DefaultScratchTotalMiB = 512 // or one communicator's, where that is more
	MostScratchTotalMiB    = 65536
)

// ScratchMiB is the value of a flag: 0 is not given, so that the environment, or the default, holds. ScratchTotalMiB is another one.
type (
	ScratchMiB      int
	ScratchTotalMiB int
)

// wholeMiB reads a flag. What a rank would not take is refused here, where somebody reads it.
func wholeMiB(s string, most int) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n < 1 || n > uint64(most) {
		return 0, fmt.Errorf("want whole MiB, 1 to %d", most)
	}
	return int(n), nil
}

func (m *ScratchMiB) Set(s string) error {
	n, err := wholeMiB(s, MostScratchMiB)
	if err == nil {
		*m = ScratchMiB(n)
	}
	return err
}

func (m *ScratchTotalMiB) Set(s string) error {
	n, err := wholeMiB(s, MostScratchTotalMiB)
	if err == nil {
		*m = ScratchTotalMiB(n)
	}
	return err
}

// shownMiB is "" where a flag is not given.
func shownMiB(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func (m *ScratchMiB) String() string      { return shownMiB(int(*m)) }
func (m *ScratchTotalMiB) String() string { return shownMiB(int(*m)) }

// Type is what help calls the value.
func (*ScratchMiB) Type() string      { return "MiB" }
func (*ScratchTotalMiB) Type() string { return "MiB" }
