package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/render"
	"dynamiccl/cmd/dynamiccld/internal/rulefile"
	"dynamiccl/cmd/dynamiccld/internal/storefile"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
)

// importReport is what `import --json` writes.
type importReport struct {
	Target      string   `json:"target"`
	Rules       int      `json:"rules"`
	Conditional int      `json:"conditional"` // rules on numPipeOps or regBuff, which are passed over
	Choices     int      `json:"choices,omitempty"`
	Warnings    []string `json:"warnings"`
}

// importFlags say what a store file files rules under; a live daemon knows it.
type importFlags struct {
	machine, gpuArch, ncclVersion string
	ranks, nodes                  int
}

func (a *app) importCommand() *cobra.Command {
	var asJSON bool
	var to source
	var f importFlags
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Take over rules of NCCL's example tuner plugin as starting points",
		Long: `Take over rules in the CSV of NCCL's example tuner plugin as starting points, into a live
daemon or into a store file that no daemon uses. "-" is standard input. Every line is
checked before the first one counts. A rule must be measured better than NCCL's default
before it stays. Rules on numPipeOps or regBuff are passed over: ranks of one call may
differ in these, and would then choose differently.

A store file keeps choices by machine, GPU, NCCL version, ranks and nodes: name those that
serve logs when a communicator joins, and --ranks and --nodes where rules leave them open.`,
		Example: `  dynamiccld import nccl_tuner.conf
  dynamiccld import nccl_tuner.conf --store learned.db --nccl-version 2.28.9 --machine "8x NVIDIA H200, 0 NICs" --gpu-arch sm_90 --ranks 8`,
		Args: wantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"machine", "gpu-arch", "nccl-version", "ranks", "nodes"} {
				if to.store == "" && cmd.Flags().Changed(name) {
					return usageError(fmt.Errorf("--%s goes with --store alone: a daemon knows its communicators", name))
				}
			}
			text, rules, err := a.readRules(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			report := importReport{Rules: len(rules), Conditional: rulefile.Conditional(rules), Warnings: []string{}}
			if report.Conditional == len(rules) {
				return fmt.Errorf("%s: every rule looks at numPipeOps or regBuff, so nothing can be taken over; set both to -1", args[0])
			}
			if report.Conditional > 0 {
				report.Warnings = append(report.Warnings, fmt.Sprintf("passed over because of numPipeOps or regBuff: %s", units.Count(report.Conditional, "rule")))
			}
			if to.store != "" {
				err = f.intoStore(&report, to.store, rules)
			} else {
				err = a.intoDaemon(cmd, &report, to, text, rules)
			}
			if err != nil {
				return err
			}
			return a.writeImport(report, asJSON)
		},
	}
	a.sourceFlags(cmd, &to)
	cmd.Flags().Lookup("store").Usage = "write into this store file and not into a live daemon"
	cmd.Flags().StringVar(&f.machine, "machine", "", "with --store: machine shape")
	cmd.Flags().StringVar(&f.gpuArch, "gpu-arch", "", "with --store: GPU architecture")
	cmd.Flags().StringVar(&f.ncclVersion, "nccl-version", "", "with --store: NCCL version, like 2.30.7")
	cmd.Flags().IntVar(&f.ranks, "ranks", 0, "with --store: ranks of the communicator that open rules are for")
	cmd.Flags().IntVar(&f.nodes, "nodes", 1, "with --store: nodes of the communicator that open rules are for")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// readRules ends with ctx: who has typed "-", or named a pipe, may think better of it.
func (a *app) readRules(ctx context.Context, name string) (text string, rules []actions.Rule, err error) {
	r := a.stdin
	if name == "-" {
		name = "standard input"
	} else {
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe that nobody writes into ends at once
		if err != nil {
			return "", nil, fmt.Errorf("reading rules: %w; name a CSV file, or - for standard input", err)
		}
		defer f.Close()
		r = f
	}
	type result struct {
		text  string
		rules []actions.Rule
		err   error
	}
	read := make(chan result, 1)
	go func() {
		var got result
		got.text, got.rules, got.err = rulefile.Read(name, r, control.MaxImportBytes)
		read <- got
	}()
	select {
	case got := <-read:
		return got.text, got.rules, got.err
	case <-ctx.Done():
		return "", nil, fmt.Errorf("stopped while %s was read; nothing was taken over", name)
	}
}

func (a *app) intoDaemon(cmd *cobra.Command, report *importReport, to source, text string, rules []actions.Rule) error {
	client, cfg, err := a.client(to.dir)
	if err != nil {
		return err
	}
	report.Target = "daemon of " + cfg.Dir
	st, err := client.Status(cmd.Context())
	if err != nil {
		return err
	}
	var shapes []state.Shape
	for _, c := range st.Comms {
		if c.Active {
			shapes = append(shapes, state.Shape{Ranks: c.Ranks, Nodes: c.Nodes})
		}
	}
	if len(shapes) == 0 {
		return errors.New("nothing was imported: no communicator is tuned at the moment, and a daemon takes rules over for those that are; start the program first, or import into a store file")
	}
	if err := holds(rules, once(shapes)); err != nil {
		return err
	}
	_, err = client.Import(cmd.Context(), text)
	return err
}

// holds says where no choice of any of the shapes comes of rules.
func holds(rules []actions.Rule, shapes []state.Shape) error {
	var names []string
	for _, s := range shapes {
		if choices, _ := actions.ChoicesFor(rules, s.Nodes, s.Ranks); len(choices) > 0 {
			return nil
		}
		names = append(names, fmt.Sprintf("%s on %s", units.Count(s.Ranks, "rank"), units.Count(s.Nodes, "node")))
	}
	return fmt.Errorf("nothing was imported: for %s no rule holds for most of a size bucket, from a power of two up to the next, and choices are kept by these; correct min_bytes and max_bytes, or nNodes and nRanks",
		strings.Join(names, ", "))
}

func (f importFlags) intoStore(report *importReport, path string, rules []actions.Rule) error {
	code, err := control.ParseNCCLVersion(f.ncclVersion)
	if err != nil {
		return usageError(err)
	}
	if f.machine == "" || code == 0 {
		return usageError(errors.New("no daemon looks for rules without --machine and --nccl-version; the log of `dynamiccld serve` has them, and --gpu-arch, where a communicator joins"))
	}
	for _, name := range []struct{ flag, text string }{{"machine", f.machine}, {"gpu-arch", f.gpuArch}} {
		if _, err := config.Label(name.text); err != nil { // no daemon has it
			return usageError(fmt.Errorf("--%s: %w", name.flag, err))
		}
	}
	shapes, err := f.shapes(rules)
	if err != nil {
		return usageError(err)
	}
	if err := holds(rules, shapes); err != nil {
		return err
	}
	for _, s := range shapes {
		if _, split := actions.ChoicesFor(rules, s.Nodes, s.Ranks); len(split) > 0 {
			report.Warnings = append(report.Warnings, fmt.Sprintf(
				"rules for %s on %s begin or end inside of size buckets (%d): such a bucket gets what holds for most of its sizes", units.Count(s.Ranks, "rank"), units.Count(s.Nodes, "node"), len(split)))
		}
	}
	report.Target = "store " + path
	report.Choices, err = storefile.Import(path, rules, storefile.Target{Machine: f.machine, GPUArch: f.gpuArch, NCCLVersion: code}, shapes)
	return err
}

// shapes are the communicators that rules name, and the one of --ranks and --nodes, which open rules need.
func (f importFlags) shapes(rules []actions.Rule) ([]state.Shape, error) {
	var shapes []state.Shape
	add := func(s state.Shape) {
		if !slices.Contains(shapes, s) {
			shapes = append(shapes, s)
		}
	}
	if f.ranks < 0 || f.nodes < 1 || f.ranks > 0 && f.ranks < f.nodes {
		return nil, fmt.Errorf("--ranks %d on --nodes %d is no communicator; a node has at least one rank", f.ranks, f.nodes)
	}
	for _, r := range rules {
		switch {
		case r.Conditional():
		case r.Ranks != actions.Any && r.Nodes != actions.Any:
			add(state.Shape{Ranks: r.Ranks, Nodes: r.Nodes})
		case f.ranks == 0:
			return nil, fmt.Errorf("a rule for %s leaves ranks or nodes open, and a store file is kept by both; name them with --ranks and --nodes", r.Collective)
		}
	}
	if f.ranks > 0 {
		add(state.Shape{Ranks: f.ranks, Nodes: f.nodes})
	}
	return shapes, nil
}

func (a *app) writeImport(report importReport, asJSON bool) error {
	if asJSON {
		return render.JSON(a.stdout, report)
	}
	for _, w := range report.Warnings {
		fmt.Fprintf(a.stderr, "dynamiccld: %s\n", w)
	}
	s := fmt.Sprintf("%s imported into %s", units.Count(report.Rules-report.Conditional, "rule"), report.Target)
	if report.Choices > 0 {
		s += " as " + units.Count(report.Choices, "choice")
	}
	_, err := fmt.Fprintln(a.stdout, s)
	return err
}
