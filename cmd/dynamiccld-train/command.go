package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dynamiccl/agents"
	"dynamiccl/models/train"
	"dynamiccl/tuner/tunersim"
)

// Exit codes; the first three are those of dynamiccld.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // what shells report of a program that SIGINT ended
)

// program is the process that the command runs in.
type program struct {
	stdout, stderr io.Writer
	getenv         func(string) string
	now            func() time.Time
	commit         string
	start          func(train.Recipe, []*tunersim.Table, int) (trainer, error)
}

// trainer is what this command needs of train.Trainer.
type trainer interface {
	Step() (loss, norm float64, err error)
	Validate(loss, norm float64) float64
	Checkpoint() ([]byte, error)
	Resume(file []byte) error
	Best() (*agents.PolicyWeights, float64)
	Update() int
	Done() bool
	Curve() []train.Point
	Origin() train.Origin
}

func newTrainer(r train.Recipe, tables []*tunersim.Table, threads int) (trainer, error) {
	t, err := train.New(r, tables, threads)
	if err != nil {
		return nil, err // a nil *train.Trainer in the interface would not be nil
	}
	return t, nil
}

// options are what the command line says.
type options struct {
	traces, holdOut []string
	store           string
	recipe          train.Recipe
	objective       string
	without         []string
	threads, every  int
	out, checkpoint string
	curve           string
	resume, quiet   bool
	args            []string // the whole command line, for telling how to go on
}

// errInterrupted says that a signal ended the run and that all is kept.
var errInterrupted = errors.New("interrupted")

// usage marks an error of the command line.
type usage struct{ error }

func (u usage) Unwrap() error { return u.error }

// main runs the command and gives the exit code.
func (p *program) main(ctx context.Context, args []string) int {
	cmd := p.command(args)
	cmd.SetArgs(args)
	cmd.SetOut(p.stdout)
	cmd.SetErr(p.stderr)
	err := cmd.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errInterrupted):
		return exitInterrupted // it has said what to do
	}
	fmt.Fprintf(p.stderr, "dynamiccld train: %v\n", err)
	if errors.As(err, new(usage)) {
		return exitUsage
	}
	return exitFailed
}

func (p *program) command(args []string) *cobra.Command {
	o := options{recipe: train.DefaultRecipe(), args: args}
	shipped := o.recipe
	cmd := &cobra.Command{
		Use:   "train [flags]",
		Short: "Train the policy on tables, synthetic fabrics and a daemon's experience",
		Long: `Train the recurrent policy, first on synthetic fabrics, then on measured tables with
some synthetic fabrics among them. Without tables give --synthetic 1.

SIGINT (Ctrl-C), SIGTERM or SIGHUP (a lost connection; not under nohup) finishes the
update, validates, keeps the best weights and a checkpoint, and says how to go on; a
second one stops at once. A run that goes on from a checkpoint writes the same bytes as
one that was never stopped. Same recipe, tables, program and machine: same bytes, but
for the date, which SOURCE_DATE_EPOCH fixes.

Until pre-training is over, a checkpoint may be gone on from with other tables, and at
its last update with another --objective. The policy's card then says so (recipe:
begun_with_other_tables, pretrained_by), and its bytes are not those of one run.

Exit codes: 0 done; 1 failed; 2 wrong flag; 130 stopped by a signal, all kept.`,
		Example: `  dynamiccld train --traces 'tuner/tunersim/testdata/measurements/*.csv' --out models/policy.dynp
  dynamiccld train --traces 'tables/*.csv' --hold-out socket --out without-socket.dynp
  dynamiccld train --synthetic 1 --updates 500 --curve curves
  dynamiccld train --store /var/lib/dynamiccl/store.db --traces 'tables/*.csv'`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage{fmt.Errorf("%q is no flag: patterns of tables come after --traces, in quotes", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("pretrain") {
				o.recipe.Pretrain = shipped.Pretrain * o.recipe.Updates / shipped.Updates
			}
			if err := o.complete(); err != nil {
				return usage{err}
			}
			return p.train(cmd.Context(), o)
		},
	}
	// The line that people see begins with the program they called.
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), "{{.UseLine}}", "dynamiccld {{.UseLine}}"))
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usage{fmt.Errorf("%w; see `dynamiccld train --help`", err)}
	})
	f, r := cmd.Flags(), &o.recipe
	f.SortFlags = false
	f.StringArrayVar(&o.traces, "traces", nil, "pattern of CSV files with the columns of the measurements; may be given again")
	f.StringArrayVar(&o.holdOut, "hold-out", nil, "leave out tables with this in their machine/transport/condition or file's name; may be given again")
	f.StringVar(&o.store, "store", "", "learn from the experience in this store file of a daemon too")
	f.Float64Var(&r.Synthetic, "synthetic", r.Synthetic, "part of the episodes that stay synthetic after pre-training, 0 to 1")
	f.IntVar(&r.Updates, "updates", r.Updates, "steps of the optimiser")
	f.IntVar(&r.Pretrain, "pretrain", r.Pretrain, "of them, the first ones on synthetic fabrics alone; not given: in proportion to --updates")
	f.Float64Var(&r.Rate, "rate", r.Rate, "learning rate after warming up; it falls to a twentieth")
	f.Uint64Var(&r.Seed, "seed", r.Seed, "of everything random")
	f.StringVar(&o.objective, "objective", string(r.Objective), "what the heads learn to say: "+list(train.Objectives))
	f.StringSliceVar(&o.without, "without", nil, "train without some inputs, for an ablation: "+strings.Join(agents.InputNames(), ","))
	f.IntVar(&o.threads, "threads", runtime.GOMAXPROCS(0), "episodes played at a time; the result does not depend on it")
	f.StringVar(&o.out, "out", "policy.dynp", "policy file to write")
	f.StringVar(&o.checkpoint, "checkpoint", "", "checkpoint to write, removed when training is done (default: --out with .ckpt)")
	f.BoolVar(&o.resume, "resume", false, "go on from the checkpoint")
	f.StringVar(&o.curve, "curve", "", "write the training curve as CSV and PNG into this folder")
	f.IntVar(&o.every, "validate-every", 300, "updates between two validations; the best validated weights are kept")
	f.BoolVar(&o.quiet, "quiet", false, "do not show progress")
	return cmd
}

func list[T ~string](all []T) string {
	names := make([]string, len(all))
	for i, x := range all {
		names[i] = string(x)
	}
	return strings.Join(names, ", ")
}

// complete checks what flags say and fills in what follows from others.
func (o *options) complete() error {
	r := &o.recipe
	r.Objective = train.Objective(o.objective)
	for _, name := range o.without {
		if !r.Without.LeaveOut(name) {
			return fmt.Errorf("--without %q: want some of %s", name, strings.Join(agents.InputNames(), ","))
		}
	}
	switch {
	case o.threads < 1:
		return fmt.Errorf("--threads %d: want 1 or more", o.threads)
	case o.every < 1:
		return fmt.Errorf("--validate-every %d: want 1 or more", o.every)
	case o.out == "":
		return errors.New("--out is empty: name the policy file to write")
	case len(o.traces) == 0 && o.store == "" && !o.synthetic():
		return errors.New("nothing to learn from: give --traces, --store, or --synthetic 1 for synthetic fabrics alone")
	case len(o.traces) == 0 && len(o.holdOut) > 0 && o.store == "":
		return errors.New("--hold-out leaves out tables: give them with --traces or --store")
	}
	if o.checkpoint == "" {
		o.checkpoint = o.out + ".ckpt"
	}
	return r.Check()
}

// synthetic reports that no table is needed.
func (o *options) synthetic() bool {
	return o.recipe.Synthetic >= 1 || o.recipe.Pretrain >= o.recipe.Updates
}
