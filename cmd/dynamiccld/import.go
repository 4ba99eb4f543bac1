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
	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// importReport is what `import --json` writes.
type importReport struct {
	Target      string   `json:"target"`
	Rules       int      `json:"rules"`
	Conditional int      `json:"conditional"` // rules on numPipeOps or regBuff, which are passed over
	Refused     int      `json:"refused,omitempty"`
	Choices     int      `json:"choices,omitempty"`
	Warnings    []string `json:"warnings"`

	Changes []importChange `json:"changes,omitempty"` // of a store file
}

// importChange is what became of one size.
type importChange struct {
	Ranks      int    `json:"ranks"`
	Nodes      int    `json:"nodes"`
	Transport  string `json:"transport,omitempty"` // "": of any that has nothing of its own
	Collective string `json:"collective"`
	MinBytes   uint64 `json:"min_bytes"`
	Outcome    string `json:"outcome,omitempty"`  // added, kept (what was there), replaced, refused
	Refusals   int    `json:"refusals,omitempty"` // new ones
}

// importFlags say what a store file files rules under; a live daemon knows it.
type importFlags struct {
	machine, gpuArch, ncclVersion string
	ranks, nodes                  int
	replace                       bool
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

An import fills what is missing. What was measured on this machine stays, unless --replace
says otherwise. What calibrate has found to hang or to give wrong elements is refused, here
and where the file comes from ("export" writes it along), and no import takes that back.

A store file keeps choices by machine, GPU, NCCL version, ranks and nodes: name those that
serve logs when a communicator joins, and --ranks and --nodes where rules leave them open.`,
		Example: `  dynamiccld import nccl_tuner.conf
  dynamiccld import nccl_tuner.conf --store learned.db --nccl-version 2.28.9 --machine "8x NVIDIA H200, 0 NICs" --gpu-arch sm_90 --ranks 8`,
		Args: wantArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, name := range []string{"machine", "gpu-arch", "nccl-version", "ranks", "nodes", "replace"} {
				if to.store == "" && cmd.Flags().Changed(name) {
					return usageError(fmt.Errorf("--%s goes with --store alone: a daemon knows its communicators", name))
				}
			}
			file, err := a.readRules(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			rules := file.Rules
			report := importReport{Rules: len(rules), Conditional: rulefile.Conditional(rules), Refused: len(file.Refused), Warnings: []string{}}
			if report.Conditional == len(rules) && report.Refused == 0 {
				return fmt.Errorf("%s: every rule looks at numPipeOps or regBuff, so nothing can be taken over; set both to -1", args[0])
			}
			if report.Conditional > 0 {
				report.Warnings = append(report.Warnings, fmt.Sprintf("passed over because of numPipeOps or regBuff: %s", units.Count(report.Conditional, "rule")))
			}
			if to.store != "" {
				err = f.intoStore(&report, to.store, file)
			} else {
				err = a.intoDaemon(cmd, &report, to, file)
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
	cmd.Flags().BoolVar(&f.replace, "replace", false, "with --store: replace also what was measured on this machine")
	jsonFlag(cmd, &asJSON)
	return cmd
}

// readRules ends with ctx: who has typed "-", or named a pipe, may think better of it.
func (a *app) readRules(ctx context.Context, name string) (rulefile.File, error) {
	r := a.stdin
	if name == "-" {
		name = "standard input"
	} else {
		f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe that nobody writes into ends at once
		if err != nil {
			return rulefile.File{}, fmt.Errorf("reading rules: %w; name a CSV file, or - for standard input", err)
		}
		defer f.Close()
		r = f
	}
	type result struct {
		file rulefile.File
		err  error
	}
	read := make(chan result, 1)
	go func() {
		var got result
		got.file, got.err = rulefile.Read(name, r, control.MaxImportBytes)
		read <- got
	}()
	select {
	case got := <-read:
		return got.file, got.err
	case <-ctx.Done():
		return rulefile.File{}, fmt.Errorf("stopped while %s was read; nothing was taken over", name)
	}
}

func (a *app) intoDaemon(cmd *cobra.Command, report *importReport, to source, file rulefile.File) error {
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
	if err := holds(file, once(shapes)); err != nil {
		return err
	}
	_, err = client.Import(cmd.Context(), file.Text)
	return err
}

// holds says where no choice of any of the shapes comes of a file's rules, and it refuses nothing.
func holds(file rulefile.File, shapes []state.Shape) error {
	if len(file.Refused) > 0 {
		return nil
	}
	var names []string
	for _, s := range shapes {
		if choices, _ := actions.ChoicesFor(file.Rules, s.Nodes, s.Ranks); len(choices) > 0 {
			return nil
		}
		names = append(names, fmt.Sprintf("%s on %s", units.Count(s.Ranks, "rank"), units.Count(s.Nodes, "node")))
	}
	return fmt.Errorf("nothing was imported: for %s no rule holds for most of a size bucket, from a power of two up to the next, and choices are kept by these; correct min_bytes and max_bytes, or nNodes and nRanks",
		strings.Join(names, ", "))
}

func (f importFlags) intoStore(report *importReport, path string, file rulefile.File) error {
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
	shapes, err := f.shapes(file)
	if err != nil {
		return usageError(err)
	}
	if err := holds(file, shapes); err != nil {
		return err
	}
	for _, s := range shapes {
		if _, split := actions.ChoicesFor(file.Rules, s.Nodes, s.Ranks); len(split) > 0 {
			report.Warnings = append(report.Warnings, fmt.Sprintf(
				"rules for %s on %s begin or end inside of size buckets (%d): such a bucket gets what holds for most of its sizes", units.Count(s.Ranks, "rank"), units.Count(s.Nodes, "node"), len(split)))
		}
	}
	report.Target = "store " + path
	changes, err := storefile.Import{Rules: file.Rules, Refused: file.Refused, Shapes: shapes, Replace: f.replace,
		Target: storefile.Target{Machine: f.machine, GPUArch: f.gpuArch, NCCLVersion: code}}.Into(path)
	for _, c := range changes {
		k := c.Key
		report.Changes = append(report.Changes, importChange{k.Shape.Ranks, k.Shape.Nodes, k.Shape.Transport, k.Bucket.Collective.String(), 1 << k.Bucket.Log2Bytes, c.Outcome, c.Refusals})
		if c.Outcome == storefile.Added || c.Outcome == storefile.Replaced {
			report.Choices++
		}
	}
	return err
}

// shapes are the communicators that rules name, and the one of --ranks and --nodes, which open rules need.
func (f importFlags) shapes(file rulefile.File) ([]state.Shape, error) {
	var shapes []state.Shape
	add := func(s state.Shape) {
		if !slices.Contains(shapes, s) {
			shapes = append(shapes, s)
		}
	}
	if f.ranks < 0 || f.nodes < 1 || f.ranks > 0 && f.ranks < f.nodes {
		return nil, fmt.Errorf("--ranks %d on --nodes %d is no communicator; a node has at least one rank", f.ranks, f.nodes)
	}
	if f.ranks > nccltuner.MaxRanks*f.nodes {
		return nil, fmt.Errorf("--ranks %d on --nodes %d: a node of a communicator has at most %d ranks here", f.ranks, f.nodes, nccltuner.MaxRanks)
	}
	for _, r := range file.Rules {
		switch {
		case r.Conditional():
		case r.Ranks != actions.Any && r.Nodes != actions.Any:
			add(state.Shape{Ranks: r.Ranks, Nodes: r.Nodes})
		case f.ranks == 0:
			return nil, fmt.Errorf("a rule for %s leaves ranks or nodes open, and a store file is kept by both; name them with --ranks and --nodes", r.Collective)
		}
	}
	for _, r := range file.Refused {
		add(state.Shape{Ranks: r.Ranks, Nodes: r.Nodes})
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
	s := units.Count(report.Rules-report.Conditional, "rule")
	if report.Refused > 0 {
		s += " and " + units.Count(report.Refused, "refusal")
	}
	s += " imported into " + report.Target
	if report.Changes != nil {
		s += " as " + units.Count(report.Choices, "choice")
	}
	_, err := fmt.Fprintln(a.stdout, s+changesText(report.Changes))
	return err
}

// changesText says what became of each size, a line for a collective of a shape.
func changesText(all []importChange) (text string) {
	kept := false
	for len(all) > 0 {
		first, n := all[0], 0
		of := map[string][]string{}
		refusals := 0
		for ; n < len(all) && all[n].Ranks == first.Ranks && all[n].Nodes == first.Nodes && all[n].Collective == first.Collective; n++ {
			size := state.FormatBytes(all[n].MinBytes)
			if all[n].Transport != "" {
				size += " over " + all[n].Transport
			}
			of[all[n].Outcome] = append(of[all[n].Outcome], size)
			refusals += all[n].Refusals
		}
		all = all[n:]
		var said []string
		for _, outcome := range []string{storefile.Added, storefile.Kept, storefile.Replaced, storefile.Refused} {
			if sizes := of[outcome]; len(sizes) > 0 {
				said = append(said, fmt.Sprintf("%d %s (%s)", len(sizes), outcome, strings.Join(sizes, ", ")))
			}
		}
		if refusals > 0 {
			said = append(said, units.Count(refusals, "new refusal"))
		}
		kept = kept || len(of[storefile.Kept]) > 0
		if len(said) > 0 {
			text += fmt.Sprintf("\n  %s on %s, %s: %s", units.Count(first.Ranks, "rank"), units.Count(first.Nodes, "node"), first.Collective, strings.Join(said, "; "))
		}
	}
	if kept {
		text += "\nkept: what was measured on this machine, or is the same; --replace takes what is imported instead"
	}
	return text
}
