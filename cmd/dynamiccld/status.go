package main

import (
	"github.com/spf13/cobra"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/render"
)

// recentFindings is how many findings status shows: about one screen with everything else.
const recentFindings = 5

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the daemon, its communicators and what it noticed last",
		Example: "  dynamiccld status\n  dynamiccld status --dir /run/dynamiccl --json",
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, _, err := a.client(cmd.Flags())
			if err != nil {
				return err
			}
			st, err := client.Status(cmd.Context())
			if err != nil {
				return err
			}
			found, err := client.Findings(cmd.Context())
			if err != nil {
				return err
			}
			recent := append([]control.Finding{}, found[max(0, len(found)-recentFindings):]...)
			report := render.StatusReport{Status: st, Recent: recent}
			if asJSON {
				return render.JSON(a.stdout, report)
			}
			return render.Status(a.stdout, report, a.now())
		},
	}
	a.dirFlag(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}
