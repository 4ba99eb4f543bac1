package main

import (
	"github.com/spf13/cobra"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/render"
)

// tableReport is what `table --json` writes.
type tableReport struct {
	Source  string           `json:"source"`
	Buckets []control.Bucket `json:"buckets"`
}

func (a *app) tableCommand() *cobra.Command {
	var asJSON bool
	var from source
	cmd := &cobra.Command{
		Use:   "table",
		Short: "Show the decision matrix, collective by size",
		Long: `Show what is chosen for each collective and size, with the measured speed-up over
NCCL's default beside it. A size stands for everything up to twice of it.`,
		Example: `  dynamiccld table
  dynamiccld table --comm 7f3a52c1009be011
  dynamiccld table --store /var/lib/dynamiccl/store.db --json`,
		Args: wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			buckets, name, err := a.buckets(cmd.Context(), from)
			if err != nil {
				return a.nothing(err, asJSON, tableReport{name, []control.Bucket{}})
			}
			if asJSON {
				return render.JSON(a.stdout, tableReport{name, buckets})
			}
			return render.Table(a.stdout, buckets)
		},
	}
	a.sourceFlags(cmd, &from)
	a.commFlag(cmd, &from)
	jsonFlag(cmd, &asJSON)
	return cmd
}
