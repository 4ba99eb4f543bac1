package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/render"
	"dynamiccl/cmd/dynamiccld/internal/rulefile"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/state"
)

const formatNCCL = "nccl-csv"

// exportReport is what `export --json` writes.
type exportReport struct {
	Source  string          `json:"source"`
	Format  string          `json:"format"`
	Output  string          `json:"output,omitempty"` // file that was written
	Rules   []rulefile.JSON `json:"rules"`
	LeftOut int             `json:"left_out"`          // buckets that have our own kernels
	Refused int             `json:"refused,omitempty"` // choices that hung or gave wrong elements
}

// kind narrows choices down to one kind of machine, NCCL version and transport. nil: any.
type kind struct{ machine, gpuArch, ncclVersion, transport *string }

func (k kind) has(b control.Bucket) bool {
	same := func(want *string, is string) bool { return want == nil || *want == is }
	return same(k.machine, b.Machine) && same(k.gpuArch, b.GPUArch) && same(k.ncclVersion, b.NCCLVersion) &&
		same(k.transport, cmp.Or(b.Transport, state.UnknownTransport))
}

func (a *app) exportCommand() *cobra.Command {
	var asJSON bool
	var format, output, machine, gpuArch, ncclVersion, transport string
	var from source
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write what is chosen as rules for NCCL's example tuner plugin",
		Long: `Write what is chosen, of a live daemon or of a store file, in the CSV of NCCL's example
tuner plugin (NCCL_TUNER_CONFIG_FILE). Buckets on NCCL's default have no line: the format
cannot say "NCCL's own choice". Nor can it say lsa/... and gin/..., our own kernels: buckets where one of
them is chosen have no line either, and how many they are is said on standard error. What
calibrate has found to hang or to give wrong elements stands in comments, which "import" reads
and NCCL's plugin passes over.`,
		Example: `  dynamiccld export --format nccl-csv -o nccl_tuner.conf
  dynamiccld export --store /var/lib/dynamiccl/store.db --nccl-version 2.30.7`,
		Args: wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "-" { // as import has standard input
				output = ""
			}
			if format != formatNCCL {
				return usageError(fmt.Errorf("--format %q is not known; use %s", format, formatNCCL))
			}
			if cmd.Flags().Changed("transport") && transport != state.UnknownTransport && !slices.Contains(state.Transports, transport) {
				return usageError(fmt.Errorf("--transport %q is not known; one of %s, %s", transport, strings.Join(state.Transports, ", "), state.UnknownTransport))
			}
			if cmd.Flags().Changed("nccl-version") {
				if _, err := control.ParseNCCLVersion(ncclVersion); err != nil {
					return usageError(fmt.Errorf("--nccl-version: %w", err))
				}
			}
			buckets, name, err := a.buckets(cmd.Context(), from)
			report := exportReport{Source: name, Format: format, Rules: []rulefile.JSON{}}
			if err != nil {
				return a.nothing(err, asJSON, report)
			}
			var k kind
			for flag, v := range map[string]struct {
				set  **string
				text *string
			}{"machine": {&k.machine, &machine}, "gpu-arch": {&k.gpuArch, &gpuArch}, "nccl-version": {&k.ncclVersion, &ncclVersion}, "transport": {&k.transport, &transport}} {
				if cmd.Flags().Changed(flag) {
					*v.set = v.text
				}
			}
			if buckets = slices.DeleteFunc(buckets, func(b control.Bucket) bool { return !k.has(b) }); len(buckets) == 0 {
				return a.nothing(unknown("%s holds choices, none of them of what --machine, --gpu-arch, --nccl-version and --transport name; `dynamiccld table%s` shows what it holds",
					name, from.flag()), asJSON, report)
			}
			refused, err := rulefile.Refused(buckets)
			if err != nil {
				return err
			}
			buckets, ours := rulefile.Sayable(buckets)
			rules, err := rulefile.Rules(buckets)
			if err != nil {
				return err
			}
			if ours > 0 {
				fmt.Fprintf(a.stderr, "dynamiccld: %s left out: our own kernels (lsa/..., gin/...) are chosen there, which %s cannot say; NCCL's default is what it leaves\n",
					units.Count(ours, "size"), format)
			}
			report.Output, report.Rules, report.LeftOut, report.Refused = output, rulefile.ToJSON(rules), ours, len(refused)
			return a.writeRules(report, rulefile.File{Rules: rules, Refused: refused}, asJSON)
		},
	}
	a.sourceFlags(cmd, &from)
	a.commFlag(cmd, &from)
	cmd.Flags().StringVar(&format, "format", formatNCCL, "format of the rules")
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write; empty or -: standard output")
	cmd.Flags().StringVar(&machine, "machine", "", "only choices learned on this machine shape")
	cmd.Flags().StringVar(&gpuArch, "gpu-arch", "", "only choices learned on this GPU architecture")
	cmd.Flags().StringVar(&ncclVersion, "nccl-version", "", "only choices learned with this NCCL version, like 2.30.7")
	cmd.Flags().StringVar(&transport, "transport", "", "only choices learned over it: nvlink, pcie, socket, rdma or unknown")
	complete(cmd, "transport", append(slices.Clone(state.Transports), state.UnknownTransport))
	complete(cmd, "format", []string{formatNCCL})
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) writeRules(report exportReport, file rulefile.File, asJSON bool) error {
	if report.Output != "" {
		if err := file.Write(report.Output); err != nil {
			return err
		}
	}
	switch {
	case asJSON:
		return render.JSON(a.stdout, report)
	case report.Output == "":
		return file.Print(a.stdout)
	}
	said := units.Count(len(file.Rules), "rule")
	if report.Refused > 0 {
		said += " and " + units.Count(report.Refused, "refusal")
	}
	_, err := fmt.Fprintf(a.stdout, "%s written to %s\n", said, report.Output)
	return err
}
