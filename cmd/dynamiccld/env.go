package main

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/launch"
	"dynamiccl/cmd/dynamiccld/internal/render"
)

func (a *app) envCommand() *cobra.Command {
	var p program
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "env",
		Short: "Print the variables that 'run' sets, for eval of a shell",
		Long: `Print what 'dynamiccld run' would set as exports of a POSIX shell. Variables of NCCL's that you
have set are kept and hence not printed; what that means is said on standard error, as is a
daemon that does not live: until one does, programs run as with plain NCCL.`,
		Example: `  eval "$(dynamiccld env)"
  dynamiccld env --no-explore --json`,
		Args: wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, cfg, err := a.client(cmd.Flags())
			if err != nil {
				return err
			}
			setup := p.prepare(a, cfg)
			notes := append(config.EnvWarnings(a.environ), setup.Notes...)
			if setup.Why != "" {
				notes = append(notes, setup.Why)
			}
			asking, cancel := context.WithTimeout(cmd.Context(), launch.AnswerWithin) // a shell waits for these lines
			defer cancel()
			if _, err := client.Status(asking); errors.Is(err, control.ErrNoDaemon) {
				notes = append(notes, "no daemon lives in "+cfg.Dir+": programs run as with plain NCCL until `dynamiccld serve` starts one")
			} else if err != nil {
				notes = append(notes, err.Error()+"; until it answers programs run as with plain NCCL")
			}
			for _, note := range notes {
				fmt.Fprintf(a.stderr, "dynamiccld: %s\n", note)
			}
			if asJSON {
				values := map[string]string{}
				for _, v := range setup.Variables {
					if !utf8.ValidString(v.Value) {
						return fmt.Errorf("%s=%q is no UTF-8, which JSON cannot hold: use `dynamiccld env` without --json, or give another name", v.Name, v.Value)
					}
					values[v.Name] = v.Value
				}
				return render.JSON(a.stdout, values)
			}
			_, err = fmt.Fprint(a.stdout, launch.Export(setup.Variables))
			return err
		},
	}
	cmd.Flags().SortFlags = false
	p.flags(a, cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}
