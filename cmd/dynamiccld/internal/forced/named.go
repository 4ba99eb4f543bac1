package forced

import (
	"errors"
	"fmt"
	"slices"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/machine"
	"dynamiccl/nccltuner"
)

// Apart says why calls on registered buffers are no collectives of their own to these ranks, whose choices are then those of plain
// ones; nil: they are.
func (s *Session) Apart() error {
	if !slices.ContainsFunc(s.view.Ranks, func(r nccltuner.RankView) bool { return !r.Windows }) {
		return nil
	}
	return errors.New("nobody tells calls on registered buffers apart where our own kernels are not: `make kernels` builds them, DYNAMICCL_NO_KERNELS=1 leaves them out, `dynamiccld doctor` " +
		"says what else they want; or take plain buffers")
}

// Named says why NCCL's kernels are no choices on registered buffers, but for what it takes by itself; nil: they are.
func (s *Session) Named() error {
	if !slices.ContainsFunc(s.view.Ranks, func(r nccltuner.RankView) bool { return !r.Names }) {
		return nil
	}
	if err := s.Apart(); err != nil {
		return err
	}
	return fmt.Errorf("NCCL %s cannot be told by name what to run on registered buffers: take 2.31 or newer for that", control.FormatNCCLVersion(machine.NCCLVersion(s.view.Ranks)))
}
