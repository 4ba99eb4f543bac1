package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/launch"
	"dynamiccl/cmd/dynamiccld/internal/paired"
	"dynamiccl/cmd/dynamiccld/internal/sweep"
	"dynamiccl/models"
)

// benchFlags is what `bench` was asked for.
type benchFlags struct {
	measuring
	o            paired.Options
	arms, phases []string
	sizes        []string
}

// benchSettings are the settings that `bench` hands on to the daemons that it starts.
var benchSettings = []string{"learner", "policy", "reward", "step-guard", "explore-budget", "sample-every", "seed", "trace"}

func (a *app) benchCommand() *cobra.Command {
	f := &benchFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Compare plain NCCL with DynamICCL while it learns, on the GPUs of this machine",
		Long: `Compare arms: groups of the same ranks on the same GPUs that make the same calls in
turn, within one run, so that all see the same machine and the same load. Plain eager
calls, no CUDA graphs unless --time asks for them: each call's choice is taken as in a
program.

  plain         NCCL without anything of DynamICCL
  run           what 'dynamiccld run' gives a program: it learns from the calls it makes
  run:LEARNER   the same with another learner
  observe       as run, but never chooses: what watching costs
  plugin        plugin and preload library, and no daemon

+VARIABLE=VALUE behind any of them, also several times, sets that in its ranks alone, not
in its daemon: --sample-every and other settings below are of all arms' daemons.

The first of --arms is the base. Ranks of one arm call at a time, the others wait. In a
round every arm makes, for each collective and size, a batch of --calls calls, fewer
where these would take longer than --batch; who is first goes around. A batch counts
with the median of its replays on the slowest rank. Every result is checked element by
element; any wrong element makes the exit code 1.

--phases is a list of LOAD:TIME; loads are quiet and those of 'sweep': network, cpu,
compute, copy. Arms go on learning from phase to phase. Of each phase the last half
counts: the median over rounds of the base's time over the arm's, with a 95% interval
(sign test), for each size, and of the geometric mean over all sizes. An arm has adapted
at the first time from which its geometric mean, as a running median over five rounds,
stays within 5% of what it is in the phase's last third.

Calls begin at once, so small ones may take what the host takes to enqueue them. With
--time gpu each replay is held back until all its calls are enqueued, and the GPU's time
counts; a choice that runs for the first time and waits for the GPU while it is set up,
as NCCL's device kernels do, then ends the run after --timeout. With --time host calls are
held back likewise, and what it takes the host to enqueue them counts. With --time graph
every batch captures its calls into a CUDA graph and replays that: nothing is learnt
then, for captured calls are never timed, but what capturing with the plugin does shows.
With --comms every rank has so many communicators, whose graphs are captured at the same
moment, by a thread and on a stream each; a replay is all of them, one behind the other.

Which CPUs a process happens to get is worth some percent of small calls: so rank r of
every arm stays on the same --cpus-per-rank ones. plain+X=1 as one more arm shows what is
left of such luck: it is the base under another name.

--out appends JSON lines: the machine and the flags, the rounds, a summary for each phase
with what the daemons' detectors said in it, and what the daemons say at the end. Ctrl-C
or a lost connection (not under nohup) ends the run and keeps what was measured.`,
		Example: `  dynamiccld bench
  dynamiccld bench --arms plain,run,observe --phases quiet:60s,compute:60s,quiet:60s --out bench.jsonl
  dynamiccld bench --nodes 4 --phases quiet:2m,network:2m --sizes 1K,64K,1M --collectives AllReduce
  dynamiccld bench --arms plain,run:lstm,run:ucb --explore-budget 10%
  dynamiccld bench --arms plain,plain+NCCL_PROTO=LL,run+DYNAMICCL_FIXED_NUMERICS=1 --sizes 64K
  dynamiccld bench --time graph --comms 3 --arms plain,plain+X=1,plugin,observe --sample-every 2 --sizes 1K,16K,256K,4M`,
		Args: wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.bench(cmd, f) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringSliceVar(&f.arms, "arms", []string{paired.ArmPlain, paired.ArmRun}, "what is compared, the base first")
	flags.StringSliceVar(&f.phases, "phases", []string{"quiet:60s"}, "loads, each with its time")
	flags.IntVar(&f.o.LeastRounds, "min-rounds", 0, "rounds of a phase at least, also where they take longer than its time")
	flags.IntVar(&f.o.Ranks, "ranks", 0, "ranks of every arm, one a GPU (default: all GPUs that CUDA shows)")
	flags.IntVar(&f.o.Comms, "comms", 1, "communicators of every rank, 1 to 8; more than one with --time graph")
	flags.IntVar(&f.o.Nodes, "nodes", 1, "hosts that NCCL takes the ranks for")
	flags.BoolVar(&f.o.Hosts, "hosts", false, "every node has shared files and a daemon of its own, as on several hosts")
	flags.StringSliceVar(&f.o.Collectives, "collectives", []string{"AllReduce", "AllGather", "ReduceScatter"}, "what is called; also Broadcast, Reduce, AllToAll")
	flags.StringVar(&f.o.Buffers, "buffers", sweep.BuffersPlain, "plain: as cudaMalloc gives them; registered: NCCL's own memory, registered for its symmetric kernels")
	flags.StringSliceVar(&f.sizes, "sizes", []string{"1K", "16K", "64K", "256K", "1M", "4M"}, "sizes, as nccl-tests count: of the whole buffer")
	flags.IntVar(&f.o.Calls, "calls", 40, "calls of a batch that are timed")
	flags.DurationVar(&f.o.Batch, "batch", 100*time.Millisecond, "time that a batch should not exceed")
	flags.StringVar(&f.o.Time, "time", paired.TimeStream, "what is timed: stream, gpu, host or graph")
	flags.IntVar(&f.o.CPUs, "cpus-per-rank", -1, "CPUs that a rank stays on, the same in all arms; 0: any (default 4, where these are no more than half of all)")
	flags.Lookup("cpus-per-rank").DefValue = "0" // help has the default in words
	flags.IntVar(&f.o.LoadSize, "load-size", 0, "connections or threads of a load (default 24, or one a CPU)")
	flags.StringVar(&f.o.Store, "store", "", "store of the arm that learns (default: begins empty and is thrown away)")
	a.settingFlags(cmd, benchSettings...)
	flags.StringVar(&f.o.Out, "out", "", "file to which JSON lines are appended")
	flags.DurationVar(&f.o.Timeout, "timeout", 20*time.Second, "of a batch: no answer within it is an error")
	f.measuring.flags(cmd)
	complete(cmd, "arms", paired.Kinds)
	complete(cmd, "learner", models.Names())
	complete(cmd, "collectives", sweep.Collectives)
	complete(cmd, "buffers", []string{sweep.BuffersPlain, sweep.BuffersRegistered})
	complete(cmd, "time", paired.Times)
	return cmd
}

// benchCPUs are enough for a rank: its own thread, NCCL's and ours.
const benchCPUs = 4

func (a *app) bench(cmd *cobra.Command, f *benchFlags) error {
	loaded, err := config.Load(config.Sources{Host: a.host(), Env: a.environ, Flags: cmd.Flags()})
	if err != nil {
		return usageError(err)
	}
	learners, err := learnersOf(loaded.Config.Policy)
	if err != nil {
		return err
	}
	if err := f.parse(); err != nil {
		return usageError(err)
	}
	for _, arm := range f.o.Arms {
		if arm.Learner == "" {
			continue
		}
		if _, err := learners.New(arm.Learner); err != nil {
			return usageError(fmt.Errorf("--arms %s: %w", arm.Name, err))
		}
	}
	_, said := handedOn(cmd.Flags(), benchSettings, loaded.Config)
	f.o.Serve = append(f.o.Serve, said...)
	o, byItself := &f.o, !cmd.Flags().Changed("cpus-per-rank")
	if byItself {
		o.CPUs = 0
	}
	if err := f.checkFlags(&o.Ranks, o.Nodes, o.Check); err != nil {
		return err
	}
	if err := f.find(cmd.Context(), a, &o.Ranks); err != nil {
		return err
	}
	if byItself && 2*benchCPUs*o.Ranks <= runtime.NumCPU() {
		o.CPUs = benchCPUs
	}
	o.Worker, o.Executable, o.NCCL = f.worker, f.executable, f.nccl
	if err := o.Check(); err != nil {
		return usageError(err)
	}
	if err := f.environments(a); err != nil {
		return err
	}
	o.Program, o.Now, o.Progress, o.Report, o.Terminal = build().Version, a.now, a.stderr, a.stdout, a.onTerminal()
	ctx, release := keeping(cmd.Context())
	defer release()
	err = paired.Run(ctx, *o)
	if errors.Is(err, paired.ErrWrong) {
		return fmt.Errorf("%w\nnothing of this run is to be trusted; where it began is said above; NCCL_DEBUG=INFO says what ran", err)
	}
	return err
}

// parse reads what flags hold as text.
func (f *benchFlags) parse() error {
	for _, text := range f.arms {
		arm, err := paired.ParseArm(text)
		if err != nil {
			return fmt.Errorf("--arms: %w", err)
		}
		f.o.Arms = append(f.o.Arms, arm)
	}
	for _, text := range f.phases {
		phase, err := paired.ParsePhase(text)
		if err != nil {
			return fmt.Errorf("--phases: %w", err)
		}
		f.o.Phases = append(f.o.Phases, phase)
	}
	sizes, err := parseSizes(f.sizes)
	if err != nil {
		return err
	}
	f.o.Sizes = once(sizes)
	for i, c := range f.o.Collectives {
		if known, err := actions.ParseCollective(c); err == nil {
			f.o.Collectives[i] = known.String()
		}
	}
	f.o.Collectives = once(f.o.Collectives) // or the geometric mean would have them twice
	if f.o.Store != "" {
		path, err := filepath.Abs(f.o.Store) // a daemon works in /
		if err != nil {
			return fmt.Errorf("--store: %w", err)
		}
		f.o.Store = path
	}
	return nil
}

// environments says what the ranks of the arms get: the base what is here without anything of ours, the others what
// `run` would make of that.
func (f *benchFlags) environments(a *app) error {
	bare := a.bare()
	if _, err := f.setup(bare); err != nil {
		return err
	}
	f.o.Plain = bare.environ
	f.o.Tuned = func(dir string) []string {
		return launch.Environ(bare.environ, f.prepare(bare, config.Config{Dir: dir}).Variables)
	}
	f.o.Settings = settings(bare.environ)
	var refused []string
	for _, arm := range f.o.Arms {
		if arm.Kind != paired.ArmPlain {
			refused = append(refused, a.refusedKernels(slices.Concat(f.o.Tuned(""), arm.Environ), f.o.Nodes > 1)...)
		}
	}
	f.sayRefused(a, refused)
	return nil
}

// bare is this app in an environment without what `dynamiccld run` and `env` set.
func (a *app) bare() *app {
	b := *a
	b.environ = launch.Bare(a.environ)
	if a.getenv("NCCL_DEBUG") == "" {
		b.environ = append(b.environ, "NCCL_DEBUG=WARN")
	}
	b.getenv = lookup(b.environ)
	return &b
}
