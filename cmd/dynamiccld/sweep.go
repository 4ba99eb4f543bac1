package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/sweep"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/cmd/dynamiccld/internal/workers"
)

// sweepFlags is what `sweep` was asked for.
type sweepFlags struct {
	measuring
	o                        sweep.Options
	sizes, choices, channels []string
	smallest, largest        string
	factor                   uint64
	named                    bool // collectives are
	ranged                   bool // --min, --max or --factor is given
}

// Largest sizes unless somebody asks for another, as the recorded tables have them.
const (
	largestOneNode = 256 << 20
	largestNodes   = 4 << 20
)

func (a *app) sweepCommand() *cobra.Command {
	f := &sweepFlags{}
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Measure NCCL's default and every choice that a tuner can make on the GPUs of this machine",
		Long: `Measure what NCCL's default and every allowed choice of algorithm, protocol and channels
takes here, one rank a GPU. The communicator stays: a plan forces one choice after the
other, as a daemon would, and each rank says whether it ran. Each point is a CUDA graph of
up to 20 calls, replayed with warm clocks; its value is the slowest rank's median.

Three files: TABLE.csv with a row for each choice that ran, for 'eval', 'train' and
learners; TABLE.points.jsonl with every point, spread, what ran, and why there is no row;
TABLE.json with the machine. Rows are written as they are measured. A sweep that was
stopped, or killed, goes on where it was when the same command is given again. A point
that hangs or gives wrong results costs its ranks, which are started again, and not the
sweep.

--choices takes ALGORITHM/PROTOCOL/CHANNELS with * for any, and lsa/KERNEL/CTAS for our own
kernels over load and store (oneshot, twoshot, bulk, and direct on registered memory; lsa/KERNEL/CTAS/tN with
N threads a CTA in place of the kernel's own, lsa/bulk/*/t256),
gin/BACKEND/CTAS for those over NCCL's GIN (gdaki, proxy), which are measured wherever all ranks can run them. gin/BACKEND/CTAS/cN
has the CTAs share N of GIN's contexts (gin/*/8/c2, gin/*/*/c1), of which NCCL grants 4 at
most; without /cN they have all. Small calls get fewer channels or CTAs than asked for: such
rows are kept, since a tuner that asks for them gets the same, and TABLE.points.jsonl says
what ran; --exact-channels leaves them out.

--nodes makes NCCL take the ranks for ranks of so many hosts (NCCL_HOSTID): they talk over
the network, here over this machine's own. --load makes other work beside: network is TCP
over loopback, cpu threads that spin, compute kernels on most multiprocessors, copy copies
to the next GPU.

--buffers registered measures calls on memory that is registered with NCCL (ncclCommWindowRegister):
AllGather, ReduceScatter, AllReduce and AllToAll, with NCCL's default, our kernels, and from NCCL 2.31 on all
of NCCL's that a call can name, its symmetric ones among them (--choices symmetric, ring/simple). Such
calls have choices of their own, and rows under names of their own (AllReduceRegistered). Names that
NCCL refuses here have no row, and TABLE.points.jsonl says so. It needs what our kernels need, for a
call is named by libdynamiccl.so.

--single-calls times so many calls of a point one by one: TABLE.points.jsonl then has the time
of each on every rank, and their noise (spread, tail, memory). A graph holds one call then,
so the table is one of its own and no other goes on in it.

--samples, with --calls stream, writes what the daemon would have learnt of each measured
call: the times that libdynamiccl.so took by CUDA events around it, beside the time
that the ranks' own events gave. With DYNAMICCL_KERNEL_EVENTS=1 in the environment they are
the kernel and network times of NCCL's profiler; some releases of NCCL then hang when the
communicator is destroyed.`,
		Example: `  dynamiccld sweep
  dynamiccld sweep --ranks 2 --collectives AllReduce --sizes 1K,64K,1M --choices 'ring/ll128/*,tree/*/8,lsa'
  dynamiccld sweep --nodes 4 --load network --rounds 3 --out busy.csv
  dynamiccld sweep --single-calls 1000 --sizes 1K,1M --choices ring/ll/8 --out noise.csv
  dynamiccld sweep --calls stream --samples samples.csv --max 16M`,
		Args: wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.named = cmd.Flags().Changed("collectives")
			f.ranged = slices.ContainsFunc([]string{"min", "max", "factor"}, cmd.Flags().Changed)
			ctx, release := keeping(cmd.Context())
			defer release()
			return a.sweep(ctx, f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.IntVar(&f.o.Ranks, "ranks", 0, "ranks, one a GPU (default: all GPUs that CUDA shows)")
	flags.IntVar(&f.o.Nodes, "nodes", 1, "hosts that NCCL takes the ranks for")
	flags.StringSliceVar(&f.o.Collectives, "collectives", []string{"AllReduce", "AllGather", "ReduceScatter", "Broadcast", sweep.AllToAll},
		"what to measure; Reduce can be named, too; of AllToAll there are NCCL's default and our kernels")
	flags.StringVar(&f.o.Buffers, "buffers", sweep.BuffersPlain, "plain: as cudaMalloc gives them; registered: NCCL's own memory, registered for its symmetric kernels")
	flags.StringVar(&f.smallest, "min", "1K", "smallest size, as nccl-tests count: of the whole buffer")
	flags.StringVar(&f.largest, "max", "", "largest size (default 256M, on several nodes 4M)")
	flags.Uint64Var(&f.factor, "factor", 4, "from one size to the next")
	flags.StringSliceVar(&f.sizes, "sizes", nil, "the sizes themselves, without those three")
	flags.StringSliceVar(&f.choices, "choices", nil, "what to force (default: all that ranks can run); 'default' alone forces nothing")
	flags.StringSliceVar(&f.channels, "channels", nil, "channels of Ring and Tree (default: those that learners try)")
	flags.BoolVar(&f.o.Exact, "exact-channels", false, "no row where another number of channels or CTAs runs than asked for")
	flags.StringVar(&f.o.Calls, "calls", workers.Graph, "graph: replays of a CUDA graph; stream: plain calls")
	flags.IntVar(&f.o.Single, "single-calls", 0, "time so many single calls of a point, for their noise (default: replays of up to 20)")
	flags.StringVar(&f.o.Samples, "samples", "", "file that gets the sampled times of every measured call; wants --calls stream")
	flags.StringVar(&f.o.Load, "load", sweep.LoadNone, "what runs beside: none, network, cpu, compute or copy")
	flags.IntVar(&f.o.LoadSize, "load-size", 0, "connections or threads of the load (default 24, or one a CPU)")
	flags.StringVar(&f.o.Condition, "condition", "", "name of the condition in the table (default: the load's)")
	flags.StringVar(&f.o.Transport, "transport", "", "name of the transport in the table (default: what the ranks say: nvlink, pcie, socket, rdma, else unknown)")
	flags.StringVar(&f.o.Machine, "machine", "", "name of the machine in the table (default: number and model of the GPUs)")
	flags.DurationVar(&f.o.Budget, "budget", 40*time.Millisecond, "time that the replays of a point may take, beyond the first three")
	flags.IntVar(&f.o.Rounds, "rounds", 1, "sweeps whose median counts, each with communicators of its own")
	flags.DurationVar(&f.o.Timeout, "timeout", 40*time.Second, "no answer within it: the point hangs")
	flags.StringVar(&f.o.Out, "out", "", "the table (default: a name of GPUs, transport and condition, in this folder)")
	flags.BoolVar(&f.o.Restart, "restart", false, "begin anew, over the files of an earlier sweep")
	flags.BoolVar(&f.o.Retry, "retry", false, "measure again what gave no row")
	f.measuring.flags(cmd)
	complete(cmd, "collectives", sweep.Collectives)
	complete(cmd, "buffers", []string{sweep.BuffersPlain, sweep.BuffersRegistered})
	complete(cmd, "load", sweep.Loads)
	complete(cmd, "calls", []string{workers.Graph, workers.Stream})
	return cmd
}

// sweepLoadCommand is what --load network and --load cpu start; it ends with its standard input.
func (a *app) sweepLoadCommand() *cobra.Command {
	return &cobra.Command{
		Use:    sweep.LoadCommand + " KIND SIZE",
		Short:  "Make load for 'sweep' until standard input ends",
		Hidden: true,
		Args:   wantArgs("KIND", "SIZE"),
		RunE: func(_ *cobra.Command, args []string) error {
			size, err := strconv.Atoi(args[1])
			if err != nil {
				return usageError(fmt.Errorf("SIZE %q is no number", args[1]))
			}
			return sweep.MakeLoad(args[0], size, a.stdin)
		},
	}
}

func (a *app) sweep(ctx context.Context, f *sweepFlags) error {
	if err := f.parse(); err != nil {
		return usageError(err)
	}
	o := &f.o
	var err error
	if o.Sizes, err = f.parseSizes(); err != nil {
		return usageError(err)
	}
	if o.LoadSize > 0 && o.Load == sweep.LoadNone {
		return usageError(fmt.Errorf("--load-size %d of no load: name one with --load %s", o.LoadSize, strings.Join(sweep.Loads[1:], ", ")))
	}
	if err := f.checkFlags(&o.Ranks, o.Nodes, o.Check); err != nil {
		return err
	}
	if err := f.find(ctx, a, &o.Ranks); err != nil {
		return err
	}
	o.Worker, o.Executable, o.NCCL = f.worker, f.executable, f.nccl
	if err := o.Check(); err != nil {
		return usageError(err)
	}
	if o.Environ, err = f.environ(a, o.Nodes, o.Transport == "", o.Samples != ""); err != nil {
		return err
	}
	o.Settings = settings(o.Environ)
	o.Program, o.Now, o.Progress, o.Report = build().Version, a.now, a.stderr, a.stdout
	o.Terminal = a.onTerminal()
	return sweep.Run(ctx, *o)
}

// parse reads what flags hold as text.
func (f *sweepFlags) parse() error {
	for _, text := range f.choices {
		p, err := sweep.ParsePattern(text)
		if err != nil {
			return fmt.Errorf("--choices: %w", err)
		}
		f.o.Choices = append(f.o.Choices, p)
	}
	for _, text := range f.channels {
		n, err := strconv.ParseUint(text, 10, 8)
		if err != nil || n == 0 {
			return fmt.Errorf("--channels %s: want 1 to 255", text)
		}
		f.o.Channels = append(f.o.Channels, uint8(n))
	}
	for i, c := range f.o.Collectives {
		if known, err := actions.ParseCollective(c); err == nil {
			f.o.Collectives[i] = known.String()
		}
	}
	f.o.Collectives = once(f.o.Collectives)
	if f.o.Buffers == sweep.BuffersRegistered {
		var err error
		if f.o.Collectives, err = sweep.OnRegistered(f.o.Collectives, f.named); err != nil {
			return fmt.Errorf("--collectives: %w", err)
		}
	}
	return nil
}

func (f *sweepFlags) parseSizes() ([]uint64, error) {
	if len(f.sizes) > 0 {
		if f.ranged {
			return nil, errors.New("--sizes are the sizes themselves: leave out --min, --max and --factor, or --sizes")
		}
		sizes, err := parseSizes(f.sizes)
		if err != nil {
			return nil, err
		}
		slices.Sort(sizes)
		return slices.Compact(sizes), nil
	}
	smallest, err := units.ParseBytes(f.smallest)
	if err != nil {
		return nil, fmt.Errorf("--min: %w", err)
	}
	largest := uint64(largestOneNode)
	if f.o.Nodes > 1 {
		largest = largestNodes
	}
	if f.largest != "" {
		if largest, err = units.ParseBytes(f.largest); err != nil {
			return nil, fmt.Errorf("--max: %w", err)
		}
	}
	return sweep.Sizes(smallest, largest, f.factor)
}
