package sweep

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/workers"
)

// AllToAll has no choices of NCCL's.
const AllToAll = "AllToAll"

// Collectives that can be measured, by NCCL's names.
var Collectives = []string{"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", AllToAll}

// Buffers that ranks call with.
const (
	BuffersPlain      = "plain"      // as cudaMalloc gives them
	BuffersRegistered = "registered" // NCCL's own memory, registered for its symmetric kernels
)

// OnRegistered names collectives as they are called on registered memory. Those of NCCL that run nothing else there are left out
// unless somebody has named them.
func OnRegistered(collectives []string, named bool) (on []string, err error) {
	for _, name := range collectives {
		c, err := actions.ParseCollective(name)
		if err != nil {
			return nil, fmt.Errorf("--collectives: %w", err)
		}
		if other, ok := c.Plain().OnRegistered(); ok {
			on = append(on, other.String())
		} else if named {
			return nil, fmt.Errorf("--collectives %s: NCCL has nothing else for it on registered buffers; measure it on plain ones", name)
		}
	}
	return on, nil
}

// RegisteredOnNodes says why there is nothing to measure.
func RegisteredOnNodes(nodes int) error {
	return fmt.Errorf("registered buffers on %d nodes: NCCL's symmetric kernels are those of one NVLink domain", nodes)
}

// Loads that can run beside.
const (
	LoadNone    = "none"
	LoadNetwork = "network" // TCP over loopback
	LoadCPU     = "cpu"     // threads that spin
	LoadCompute = "compute" // kernels on most SMs
	LoadCopy    = "copy"    // copies to the next GPU
)

// Loads lists them.
var Loads = []string{LoadNone, LoadNetwork, LoadCPU, LoadCompute, LoadCopy}

// conditions are the recorded tables' names for them: where GPUs are joined by NVLink, copies are what loads the network.
var conditions = map[string]string{LoadNone: "quiet", LoadNetwork: "network-load", LoadCPU: "cpu-load",
	LoadCompute: "compute-load", LoadCopy: "network-load"}

// Options of a sweep.
type Options struct {
	Worker      string // dynamiccl-worker
	Executable  string // dynamiccld, for the loads
	NCCL        string // libnccl.so.2; "": the loader's
	Ranks       int
	Nodes       int
	Transport   string   // "": what the ranks say
	Machine     string   // "": from ranks and GPU
	Condition   string   // "": from the load
	Collectives []string // on registered buffers by their names there
	Buffers     string   // "": plain
	Sizes       []uint64
	Choices     []Pattern // none: all that ranks can run
	Channels    []uint8   // none: those that learners try
	Exact       bool      // leave out choices of which NCCL runs another number of channels
	Calls       string    // workers.Graph or workers.Stream
	Single      int       // single calls of a point, each timed; 0: replays of several
	Samples     string    // CSV of raw samples; "": none
	Load        string
	LoadSize    int // connections or threads; 0: as usual
	Budget      time.Duration
	Rounds      int
	Timeout     time.Duration // of a point
	Out         string        // table; "": from machine and condition
	Restart     bool          // begin anew
	Retry       bool          // measure again what gave no row
	Environ     []string      // of the ranks, plugin included, without the directory
	Settings    []string      // NCCL's variables, and ours, that change what is measured, for the description
	Program     string        // version
	Terminal    bool          // Progress goes to a terminal
	Progress    io.Writer
	Report      io.Writer
	Now         func() time.Time
}

// Limits of what is believed to be meant.
const (
	maxRanks  = 64 // DYN_MAX_RANKS
	maxRounds = 100
	maxBytes  = 1 << 36
	maxLoad   = 1024
	maxSingle = 10_000 // what a worker has room for
)

// Check says what is wrong with the options.
func (o *Options) Check() error {
	switch {
	case o.Ranks < 1 || o.Ranks > maxRanks:
		return fmt.Errorf("%d ranks: want 1 to %d", o.Ranks, maxRanks)
	case o.Nodes < 1:
		return fmt.Errorf("--nodes %d: want 1 or more", o.Nodes)
	case o.Ranks%o.Nodes != 0:
		return fmt.Errorf("%d ranks on %d nodes: want the same number of ranks on every node", o.Ranks, o.Nodes)
	case len(o.Sizes) == 0:
		return errors.New("no sizes to measure")
	case len(o.Collectives) == 0:
		return fmt.Errorf("no collectives to measure: want some of %v", Collectives)
	case slices.Min(o.Sizes) < elementBytes:
		return fmt.Errorf("--sizes %d: want %d or more, the bytes of one bfloat16", slices.Min(o.Sizes), elementBytes)
	case slices.Min(o.Sizes) < 2*uint64(o.Ranks)*16 && slices.ContainsFunc(o.Collectives, forced.Shared):
		return fmt.Errorf("--sizes %d: a rank's share would be less than 32 bytes; begin at %d", slices.Min(o.Sizes), 32*o.Ranks)
	case slices.Max(o.Sizes) > maxBytes:
		return fmt.Errorf("--sizes %d: want at most %d", slices.Max(o.Sizes), uint64(maxBytes))
	case o.Calls != workers.Graph && o.Calls != workers.Stream:
		return fmt.Errorf("--calls %q: want %s or %s", o.Calls, workers.Graph, workers.Stream)
	case o.Single < 0 || o.Single > maxSingle:
		return fmt.Errorf("--single-calls %d: want 1 to %d", o.Single, maxSingle)
	case o.Samples != "" && o.Calls != workers.Stream:
		return errors.New("samples need stream calls: what goes into a graph is not timed; add --calls stream")
	case o.Samples != "" && o.Out != "" && pathsOf(o.Out).has(o.Samples):
		return fmt.Errorf("--samples %s is a file of --out %s: what is written last would be all that is left; name another one", o.Samples, o.Out)
	case !slices.Contains(Loads, o.Load):
		return fmt.Errorf("--load %q: want one of %s", o.Load, strings.Join(Loads, ", "))
	case o.Buffers != "" && o.Buffers != BuffersPlain && o.Buffers != BuffersRegistered:
		return fmt.Errorf("--buffers %q: want %s or %s", o.Buffers, BuffersPlain, BuffersRegistered)
	case o.Buffers == BuffersRegistered && o.Nodes > 1:
		return RegisteredOnNodes(o.Nodes)
	case o.LoadSize < 0 || o.LoadSize > maxLoad:
		return fmt.Errorf("--load-size %d: want 1 to %d", o.LoadSize, maxLoad)
	case o.Rounds < 1 || o.Rounds > maxRounds:
		return fmt.Errorf("--rounds %d: want 1 to %d", o.Rounds, maxRounds)
	case o.Budget <= 0:
		return fmt.Errorf("--budget %v of a point: want more than none", o.Budget)
	case o.Timeout < time.Second:
		return fmt.Errorf("--timeout %v of a point: want at least a second", o.Timeout)
	}
	for _, c := range o.Collectives {
		if known, err := actions.ParseCollective(c); err != nil || !slices.Contains(Collectives, known.Plain().String()) ||
			known.Registered() != (o.Buffers == BuffersRegistered) {
			return fmt.Errorf("--collectives %q: want one of %s", c, strings.Join(Collectives, ", "))
		}
	}
	return nil
}

// complete fills in what follows from the rest.
func (o *Options) complete() {
	if o.Condition == "" {
		o.Condition = conditions[o.Load]
		switch {
		case o.Calls == workers.Stream && o.Load == LoadNone:
			o.Condition = "stream-calls"
		case o.Calls == workers.Stream:
			o.Condition += "-stream-calls"
		}
		if o.Single > 0 {
			o.Condition += "-single-calls"
		}
		if o.Buffers == BuffersRegistered {
			o.Condition += "-registered"
		}
	}
}

// elementBytes is what ranks measure with (elementBytes of nccltuner/worker/collective.c).
const elementBytes = 2

// Sizes gives lowest, lowest*factor, ... up to highest.
func Sizes(lowest, highest, factor uint64) ([]uint64, error) {
	if lowest == 0 || highest < lowest || highest > maxBytes || factor < 2 {
		return nil, fmt.Errorf("sizes from %d to %d by a factor of %d: want 1 or more, at most %d, and a factor of 2 or more",
			lowest, highest, factor, uint64(maxBytes))
	}
	var sizes []uint64
	for n := lowest; n <= highest; n *= factor {
		sizes = append(sizes, n)
		if n > highest/factor {
			break
		}
	}
	return sizes, nil
}

func (o *Options) largest() uint64 { return slices.Max(o.Sizes) }
