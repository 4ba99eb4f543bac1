package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"dynamiccl/cmd/dynamiccld/internal/render"
	buildinfo "dynamiccl/cmd/dynamiccld/internal/version"
	"dynamiccl/nccltuner"
)

func build() buildinfo.Info { return buildinfo.Of(version, nccltuner.ABIVersion) }

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Say which build this is",
		Example: "  dynamiccld version\n  dynamiccld version --json",
		Args:    wantArgs(),
		RunE: func(*cobra.Command, []string) error {
			v := build()
			if asJSON {
				return render.JSON(a.stdout, v)
			}
			revision := v.Revision
			if revision == "" {
				revision = "unknown"
			}
			if v.Modified {
				revision += " with local changes"
			}
			_, err := fmt.Fprintf(a.stdout, "dynamiccld %s\nrevision %s\nshared-memory layout %d\n%s %s\n", v.Version, revision, v.ABI, v.Go, v.Platform)
			return err
		},
	}
	jsonFlag(cmd, &asJSON)
	return cmd
}
