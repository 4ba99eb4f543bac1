package calibrate

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"dynamiccl/agents"
	"dynamiccl/state"
)

// Collectives that are calibrated, those that programs wait for most first.
var Collectives = []string{"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AllToAll"}

// Options of a calibration.
type Options struct {
	Worker      string // dynamiccl-worker
	NCCL        string // libnccl.so.2; "": the loader's
	Shapes      []state.Shape
	Buffers     string        // "": plain
	Collectives []string      // by their names on plain buffers
	Smallest    uint64        // sizes by powers of two from here ...
	Largest     uint64        // ... to here on one node ...
	LargestNet  uint64        // ... and to here on several
	Budget      time.Duration // for everything
	Timeout     time.Duration // no answer within it: a point hangs
	Environ     []string      // of the ranks, plugin included, without the directory
	NewLearner  agents.NewLearner
	Learner     string // its name
	Seed        uint64
	Machine     string // as the daemon names it
	GPUArch     string
	Store       string
	Progress    io.Writer
	Terminal    bool // Progress goes to a terminal
	Now         func() time.Time
}

// Limits of what is believed to be meant.
const (
	maxRanks    = 64 // DYN_MAX_RANKS
	leastBudget = 5 * time.Second
	mostBytes   = 1 << 30
)

// Check says what is wrong with the options.
func (o *Options) Check() error {
	switch {
	case len(o.Shapes) == 0:
		return errors.New("no ranks to calibrate")
	case o.Smallest < 8 || o.Largest < o.Smallest || o.LargestNet < o.Smallest || max(o.Largest, o.LargestNet) > mostBytes:
		return fmt.Errorf("sizes from %s to %s, between nodes to %s: want 8 bytes to 1 GiB, the smallest first",
			state.FormatBytes(o.Smallest), state.FormatBytes(o.Largest), state.FormatBytes(o.LargestNet))
	case o.Budget < leastBudget:
		return fmt.Errorf("--budget %v: want at least %v, for the ranks alone take seconds to start", o.Budget, leastBudget)
	case o.Timeout < time.Second:
		return fmt.Errorf("--timeout %v of a point: want at least a second", o.Timeout)
	}
	for _, s := range o.Shapes {
		if s.Ranks < 2 || s.Ranks > maxRanks || s.Nodes < 1 || s.Ranks%s.Nodes != 0 {
			return fmt.Errorf("%d ranks on %d nodes: want 2 to %d ranks, the same number on every node", s.Ranks, s.Nodes, maxRanks)
		}
	}
	for _, c := range o.Collectives {
		if !slices.Contains(Collectives, c) {
			return fmt.Errorf("--collectives %q: want one of %s", c, strings.Join(Collectives, ", "))
		}
	}
	return o.checkBuffers()
}

// Shapes are communicators of these numbers of ranks on one node, and of the first of them on the other numbers of nodes.
func Shapes(ranks, nodes []int) (all []state.Shape) {
	for _, n := range nodes {
		of := ranks
		if n != 1 {
			of = ranks[:min(1, len(ranks))]
		}
		for _, r := range of {
			if s := (state.Shape{Ranks: r, Nodes: n}); !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// Ranks are the communicators that programs make on a machine of so many GPUs: of all, and of half where there are more
// than two.
func Ranks(gpus int) []int {
	if gpus > 2 && gpus%2 == 0 {
		return []int{gpus, gpus / 2}
	}
	return []int{gpus}
}
