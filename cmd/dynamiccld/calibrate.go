package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/calibrate"
	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/machine"
	"dynamiccl/cmd/dynamiccld/internal/render"
	"dynamiccl/cmd/dynamiccld/internal/sweep"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/models"
	"dynamiccl/state"
)

// calibrateFlags is what `calibrate` was asked for.
type calibrateFlags struct {
	measuring
	o                 calibrate.Options
	ranks, nodes      []int
	smallest, largest string
	named             bool // collectives are
	asJSON            bool
}

func (a *app) calibrateCommand() *cobra.Command {
	f := &calibrateFlags{}
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Learn this machine's choices before programs start, for CUDA graphs that ask only once",
		Long: `Learn the choices for this machine's GPUs before programs start. A program that captures
CUDA graphs at its start, as serving programs do, never asks again: what was not known
then is NCCL's default for ever.

The learner itself asks for the measurements that tell it most: collectives, sizes of 8
bytes to 64 MiB, communicators of all GPUs and of half of them. CUDA graphs are timed, as a serving program
replays them, and every result is checked. What is certain goes into the store of serve
and run, and a table says what was found. The machine should be idle; a warning says when
it was not. Ctrl-C or a lost connection (not under nohup) keeps what was settled.

A choice needs three measurements of NCCL's default and two of its own, and to be better
by more than 2% beyond doubt. It holds for the machine, NCCL and communicator shape that
were measured, and for NCCL_SYM_NOWIN_ENABLE as it is here: 'run' and 'env' set it alike.

A network is measured only where you ask for it: --nodes 1,2 adds nodes that are pretended on this
machine, over sockets or its NICs, and the budget is shared among all communicators. One machine
cannot measure what lies between machines, and the store cannot tell its pretended nodes from
real hosts: a program over as many hosts would start from choices of the loopback, and hold them
for ever in a CUDA graph. So calibrate pretended nodes for programs that pretend them (NCCL_HOSTID),
and programs over hosts learn while they run.

--buffers registered calibrates calls on memory that is registered with NCCL (ncclCommWindowRegister;
on one node): AllGather, ReduceScatter, AllReduce and AllToAll, with NCCL's default, our kernels, and from
NCCL 2.31 on all of NCCL's that a call can name, its symmetric ones among them. They are stored
as collectives of their own (AllReduceRegistered), and are those of programs that register what they
call with; 'run' says so where one captured them unmeasured. all does both, one after the other,
with ranks of their own. Plain is the default: most programs register nothing, and ranks that
are started twice leave half the time to each.

In a graph NCCL registers buffers from ncclMemAlloc by itself, and some of its collectives are faster
there than between cudaMalloc's. Which of them a program will have is not known, so its default is
measured in both, and a choice has to beat the faster one; the table marks these (*).

The first 16 calls of a communicator are NCCL's default whatever is stored. A program that
makes some warm-up calls before it captures has the choices in its graphs; run it with
--no-explore, so that no trial is captured.`,
		Example: `  dynamiccld calibrate
  dynamiccld calibrate --ranks 8,4,2 --budget 2m
  dynamiccld calibrate --nodes 1,2 --collectives AllReduce --max 16M
  dynamiccld calibrate --buffers registered
  dynamiccld calibrate && dynamiccld run --no-explore -- vllm serve ...`,
		Args: wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.named = cmd.Flags().Changed("collectives")
			return a.calibrate(cmd, f)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.DurationVar(&f.o.Budget, "budget", time.Minute, "time that all of it may take")
	flags.IntSliceVar(&f.ranks, "ranks", nil, "ranks of the communicators, one a GPU (default: all GPUs, and half of them)")
	flags.IntSliceVar(&f.nodes, "nodes", []int{1}, "nodes; more than 1: the first of --ranks on nodes that are faked over this machine's network")
	flags.StringSliceVar(&f.o.Collectives, "collectives", calibrate.Collectives, "what is measured")
	flags.StringVar(&f.o.Buffers, "buffers", sweep.BuffersPlain, "plain: as cudaMalloc gives them; registered: NCCL's own memory, registered for its symmetric kernels; all: both")
	flags.StringVar(&f.smallest, "min", "8", "smallest size, as nccl-tests count: of the whole buffer")
	flags.StringVar(&f.largest, "max", "", "largest size (default 64M, on several nodes 4M)")
	a.settingFlags(cmd, "store", "learner", "policy", "machine", "gpu-arch", "seed")
	flags.DurationVar(&f.o.Timeout, "timeout", 20*time.Second, "no answer within it: the choice hangs and is left out")
	f.measuring.flags(cmd)
	jsonFlag(cmd, &f.asJSON)
	complete(cmd, "learner", models.Names())
	complete(cmd, "collectives", calibrate.Collectives)
	complete(cmd, "buffers", calibrate.Buffers)
	return cmd
}

// Largest sizes unless somebody asks for another.
const (
	calibrateOneNode = 64 << 20
	calibrateNodes   = 4 << 20
)

func (a *app) calibrate(cmd *cobra.Command, f *calibrateFlags) error {
	loaded, err := config.Load(config.Sources{Host: a.host(), Env: a.environ, Flags: cmd.Flags()})
	if err != nil {
		return usageError(err)
	}
	cfg, o := loaded.Config, &f.o
	if cfg.Store == config.StoreNone {
		return usageError(errors.New("the store is \"none\", and what is found would be lost: name a file with --store"))
	}
	learners, err := learnersOf(cfg.Policy)
	if err != nil {
		return err
	}
	if o.NewLearner, err = learners.New(cfg.Learner); err != nil {
		return usageError(err)
	}
	o.Store, o.Learner, o.Seed, o.Machine, o.GPUArch = cfg.Store, cfg.Learner, cfg.Seed, cfg.Machine, cfg.GPUArch
	root := os.DirFS(a.sysroot + "/")
	if o.Machine == "" {
		o.Machine = machine.Name(root)
	}
	if o.GPUArch == "" {
		o.GPUArch = machine.Architecture(root)
	}
	if err := f.parse(); err != nil {
		return usageError(err)
	}
	if err := f.checkShapes(); err != nil {
		return err
	}
	if err := f.shapes(cmd.Context(), a); err != nil {
		return err
	}
	if err := o.Check(); err != nil {
		return usageError(err)
	}
	o.Worker, o.NCCL, o.Now, o.Progress, o.Terminal = f.worker, f.nccl, a.now, a.stderr, a.onTerminal()
	nodes := 0
	for _, s := range o.Shapes {
		nodes = max(nodes, s.Nodes)
	}
	if o.Environ, err = f.environ(a, nodes, true, false); err != nil {
		return err
	}
	ctx, release := keeping(cmd.Context())
	defer release()
	result, err := calibrate.Run(ctx, *o)
	if len(result.Shapes) == 0 {
		return err
	}
	if f.asJSON {
		result.Warnings = slices.Concat(f.refused, result.Warnings) // people have read these before anything was measured
		return errors.Join(err, render.JSON(a.stdout, result))
	}
	return errors.Join(err, result.Write(a.stdout))
}

// parse reads what flags hold as text.
func (f *calibrateFlags) parse() (err error) {
	for i, name := range f.o.Collectives {
		if c, err := actions.ParseCollective(name); err == nil {
			f.o.Collectives[i] = c.String()
		}
	}
	f.o.Collectives = once(f.o.Collectives) // a plan cannot have two choices of one size
	if f.named && f.o.Buffers == sweep.BuffersRegistered {
		if _, err := sweep.OnRegistered(f.o.Collectives, true); err != nil {
			return fmt.Errorf("--collectives: %w", err)
		}
	}
	if f.o.Smallest, err = units.ParseBytes(f.smallest); err != nil {
		return fmt.Errorf("--min: %w", err)
	}
	f.o.Largest, f.o.LargestNet = max(calibrateOneNode, f.o.Smallest), max(calibrateNodes, f.o.Smallest)
	if f.largest != "" {
		if f.o.Largest, err = units.ParseBytes(f.largest); err != nil {
			return fmt.Errorf("--max: %w", err)
		}
		f.o.LargestNet = f.o.Largest
	}
	return nil
}

// checkShapes says what is wrong with flags; where --ranks is not given every number of nodes gets the fewest that would do.
func (f *calibrateFlags) checkShapes() error {
	f.o.Shapes = calibrate.Shapes(f.ranks, f.nodes)
	if len(f.ranks) == 0 {
		for _, n := range f.nodes {
			f.o.Shapes = append(f.o.Shapes, state.Shape{Ranks: fewestRanks(n), Nodes: n})
		}
	}
	return f.checkFlags(new(int), 1, f.o.Check)
}

// shapes finds programs and GPUs, and says which communicators are calibrated.
func (f *calibrateFlags) shapes(ctx context.Context, a *app) error {
	gpus := 0
	if len(f.ranks) > 0 {
		gpus = f.ranks[0]
	}
	if err := f.find(ctx, a, &gpus); err != nil {
		return err
	}
	if len(f.ranks) == 0 {
		f.ranks = calibrate.Ranks(gpus)
	}
	f.o.Shapes = calibrate.Shapes(f.ranks, f.nodes)
	return nil
}
