package main

import (
	"github.com/spf13/cobra"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/doctor"
	"dynamiccl/cmd/dynamiccld/internal/render"
)

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what is set up, what NCCL would load, what is wrong and the remedy",
		Long: `Check the setup from where a program would start: run it in the same shell, as the same
user. It follows NCCL's own rules from the variables to the library and its symbols,
looks at the directory, the daemon, running ranks and the store, and changes nothing.
It ends with exit code 1 when something fails.`,
		Example: "  dynamiccld doctor\n  dynamiccld doctor --json",
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			loaded, err := config.Load(config.Sources{Host: a.host(), Env: a.environ, Flags: cmd.Flags()})
			cfg := loaded.Config
			v := build()
			report := doctor.Run(cmd.Context(), doctor.Host{
				Getenv: a.getenv, EUID: a.euid, Root: a.sysroot, Dir: cfg.Dir, StorePath: cfg.Store, TracePath: cfg.Trace, ConfigErr: err, ConfigWarnings: loaded.Warnings,
				Version: v.Version, ABI: v.ABI, Client: a.asking(cfg.Dir),
			})
			if asJSON {
				err = render.JSON(a.stdout, report)
			} else {
				err = render.Doctor(a.stdout, report)
			}
			if err == nil && report.Failures > 0 {
				err = errShown
			}
			return err
		},
	}
	a.dirFlag(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}
