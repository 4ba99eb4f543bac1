package forced

import (
	"errors"
	"fmt"
	"slices"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/machine"
	"dynamiccl/nccltuner"
)

// Named says why calls on registered buffers are no collectives of their own to these ranks, whose choices are then those of plain
// ones; nil: they are.
func (s *Session) Named() error {
	version := machine.NCCLVersion(s.view.Ranks)
	switch {
	case !slices.ContainsFunc(s.view.Ranks, func(r nccltuner.RankView) bool { return !r.Names }):
		return nil
	case version < machine.NamesVersion:
		return fmt.Errorf("NCCL %s cannot be told by name what to run on registered buffers: take 2.31 or newer, or plain buffers", control.FormatNCCLVersion(version))
	}
	return errors.New("nobody tells calls on registered buffers apart where our own kernels are not: `make kernels` builds them, `dynamiccld doctor` " +
		"says what else they want; or take plain buffers")
}
