package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"dynamiccl/agents"
	"dynamiccl/cmd/dynamiccld/internal/compare"
	"dynamiccl/cmd/dynamiccld/internal/curves"
	"dynamiccl/cmd/dynamiccld/internal/render"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/cmd/internal/tracefile"
	"dynamiccl/models"
	"dynamiccl/tuner/tunersim"
)

// evalFlags is what `eval` was asked for.
type evalFlags struct {
	traces, learners            []string
	calls, seeds, jobs          int
	noise                       float64
	asJSON, perBucket, symmetry bool
	lag, plots, policy          string
	budget                      shareValue
}

// Values of --lag.
const (
	lagNone   = "none"
	lagDaemon = "daemon"
)

func (a *app) evalCommand() *cobra.Command {
	var f evalFlags
	cmd := &cobra.Command{
		Use:   "eval",
		Short: "Compare learners on recorded tables",
		Long: `Play learners against measured tables: CSV files with the columns of the measurements,
of any machine and with any actions. All buckets of a table are played at once, each with
--calls calls, and every learner gets the same calls, noise, action sets and guard. Where
several tables are of one machine in different conditions, every change from one to
another is played too; its figures are those after the change, which learners must find
by themselves.

Besides the daemon's learners there are three that know the table: oracle (the best
action of every bucket), static (the best single action of every collective) and default
(NCCL's own choice). Costs are the table's, without the noise that learners see.

Without --json there is a table of means over seeds; with it one JSON object a line for
each trace, condition, learner and seed (with --per-bucket for each bucket):
  cost_over_oracle              all calls over those of the oracle, mean over buckets
  final_over_oracle             last 8 calls over the oracle's, mean over buckets
  cost_over_default             all calls over NCCL's default, mean over buckets
  worst_window100_over_default  worst 100 calls in a row of any bucket
  calls_to_within_5pct          calls until within 5% of the oracle for 90% of the rest
                                and for the median of the next 8; all calls when never
and more keys beside. With fewer calls than 64, regret_64 is over all calls; with fewer
than 40, speed_at_32 is of the last 8 (of all, where there are fewer still).`,
		Example: `  dynamiccld eval --traces 'measurements/*.csv'
  dynamiccld eval --traces a.csv --traces b.csv --learners ucb,oracle --calls 256 --noise 0.15 --json
  dynamiccld eval --traces 'measurements/*.csv' --lag daemon --plot curves`,
		Args: wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.eval(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&f.traces, "traces", nil, "pattern of CSV files; may be given several times")
	flags.StringSliceVar(&f.learners, "learners", evalLearners(), "learners to compare")
	flags.IntVar(&f.calls, "calls", 128, "calls of every bucket in every condition")
	flags.Float64Var(&f.noise, "noise", 0.05, "standard deviation of a call's log cost; delayed and lost calls come with it")
	flags.IntVar(&f.seeds, "seeds", 5, "how many seeds to play, from 1")
	flags.StringVar(&f.lag, "lag", lagNone, "none: ask and tell at every call; daemon: plans by epochs, results late")
	policyFlag(cmd, &f.policy)
	budgetFlag(cmd, &f.budget)
	flags.BoolVar(&f.symmetry, "symmetric", false, "let learners choose NCCL's symmetric kernels, which no tuner plugin can")
	flags.BoolVar(&f.perBucket, "per-bucket", false, "with --json: a row for each bucket")
	flags.StringVar(&f.plots, "plot", "", "write regret curves as PNG into this folder")
	flags.IntVar(&f.jobs, "jobs", runtime.GOMAXPROCS(0), "runs at a time; results do not depend on it")
	flags.BoolVar(&f.asJSON, "json", false, "write JSON lines with stable keys")
	complete(cmd, "learners", evalLearners())
	complete(cmd, "lag", []string{lagNone, lagDaemon})
	return cmd
}

// evalLearners lists all that can be compared, each once.
func evalLearners() []string {
	all := tunersim.KnowingLearners()
	for _, n := range models.Names() {
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all
}

const (
	maxEvalCalls = 1_000_000
	maxEvalSeeds = 10_000
	maxEvalNoise = 2
)

func (f *evalFlags) check() error {
	switch {
	case len(f.traces) == 0:
		return errors.New("--traces is missing: give a pattern of CSV files, like --traces 'measurements/*.csv'")
	case f.calls < 1 || f.calls > maxEvalCalls:
		return fmt.Errorf("--calls %d: want 1 to %d", f.calls, maxEvalCalls)
	case !(f.noise >= 0 && f.noise <= maxEvalNoise):
		return fmt.Errorf("--noise %v: want 0 to %d; 0.05 is 5%%", f.noise, maxEvalNoise)
	case f.seeds < 1 || f.seeds > maxEvalSeeds:
		return fmt.Errorf("--seeds %d: want 1 to %d", f.seeds, maxEvalSeeds)
	case f.lag != lagNone && f.lag != lagDaemon:
		return fmt.Errorf("--lag %q: want %s or %s", f.lag, lagNone, lagDaemon)
	case f.perBucket && !f.asJSON:
		return errors.New("--per-bucket needs --json")
	case f.jobs < 1:
		return fmt.Errorf("--jobs %d: want 1 or more", f.jobs)
	}
	return nil
}

// contenders resolves the learners' names, each once.
func (f *evalFlags) contenders() ([]tunersim.Contender, error) {
	learners, err := learnersOf(f.policy)
	if err != nil {
		return nil, err
	}
	var all []tunersim.Contender
	for _, name := range f.learners {
		name = strings.TrimSpace(name)
		if slices.ContainsFunc(all, func(c tunersim.Contender) bool { return c.Name == name }) {
			continue
		}
		c := tunersim.Contender{Name: name, Batch: learnerBatch(name)}
		if !slices.Contains(tunersim.KnowingLearners(), name) {
			l, err := learners.New(name)
			if err != nil {
				return nil, fmt.Errorf("--learners: %w; or %s, which know the table", err, strings.Join(tunersim.KnowingLearners(), ", "))
			}
			c.New = l
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("--learners is empty: give some of %s", strings.Join(evalLearners(), ", "))
	}
	return all, nil
}

func (a *app) eval(ctx context.Context, f evalFlags) error {
	if err := f.check(); err != nil {
		return usageError(err)
	}
	contenders, err := f.contenders()
	if err != nil {
		return usageError(err)
	}
	traces, err := compare.Traces(f.traces, func(text string) { fmt.Fprintf(a.stderr, "dynamiccld: %s\n", text) })
	switch {
	case errors.Is(err, tracefile.ErrNoTraces), errors.Is(err, filepath.ErrBadPattern): // as `train` does
		return usageError(fmt.Errorf("--traces: %w", err))
	case err != nil:
		return err
	}
	scenarios, err := tunersim.Scenarios(traces, f.symmetry)
	if err != nil {
		return err
	}
	design, err := agents.NewDesign(agents.DefaultParams())
	if err != nil {
		return err
	}
	if f.plots != "" { // now, not when all the work is done
		if err := curves.Folder(f.plots); err != nil {
			return err
		}
	}
	progress, end := a.progress()
	results, err := compare.Run(ctx, compare.Config{
		Comparison: tunersim.Comparison{Calls: f.calls, Noise: tunersim.NoiseOf(f.noise), Guard: agents.DefaultGuardConfig().Budgeted(float64(f.budget)),
			Design: design, Daemon: f.lag == lagDaemon},
		Scenarios: scenarios, Contenders: contenders, Seeds: f.seeds, Workers: f.jobs, Progress: progress,
	})
	end()
	if err != nil {
		return err
	}
	blocks := compare.Summary(results)
	if f.plots != "" {
		files, err := curves.Regret(f.plots, blocks)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.stderr, "dynamiccld: wrote %s into %s\n", units.Count(len(files), "plot"), f.plots)
	}
	if !f.asJSON {
		return render.Comparison(a.stdout, blocks, f.noise)
	}
	return a.writeScores(results, f.perBucket)
}

func (a *app) writeScores(results []compare.Result, perBucket bool) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	for _, r := range results {
		rows := []tunersim.Score{r.All}
		if perBucket {
			rows = r.Each
		}
		for _, row := range rows {
			if err := enc.Encode(row); err != nil {
				return fmt.Errorf("writing rows: %w", err)
			}
		}
	}
	return nil
}

// progress shows how far a long evaluation is, where standard error is a terminal.
func (a *app) progress() (show func(done, all int), end func()) {
	file, ok := a.stderr.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return nil, func() {}
	}
	began, shown := a.now(), time.Time{}
	return func(done, all int) {
			now := a.now()
			if now.Sub(shown) < 200*time.Millisecond {
				return
			}
			shown = now
			left := now.Sub(began) / time.Duration(done) * time.Duration(all-done)
			fmt.Fprintf(file, "\r%d of %d runs, %s left \x1b[K", done, all, left.Round(time.Second))
		}, func() {
			if !shown.IsZero() {
				fmt.Fprint(file, "\r\x1b[K")
			}
		}
}
