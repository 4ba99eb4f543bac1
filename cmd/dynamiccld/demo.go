package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/demo"
	"dynamiccl/cmd/dynamiccld/internal/live"
	"dynamiccl/models"
)

func (a *app) demoCommand() *cobra.Command {
	var root string
	var budget shareValue
	o := demo.Options{Out: a.stdout}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the closed loop on recorded measurements, without a GPU",
		Long: `Run the closed loop on this machine: a daemon with an empty store, 8 rank processes on
the recorded 8x H200 NVLink table and 4 on the 2-node socket tables, whose condition
goes quiet, network load, CPU load, quiet. Everything is real but the time that a
collective takes: that comes from the tables, with noise. In the middle the daemon is
killed with SIGKILL and started again.

At the end a table for each phase: NCCL's default, DynamICCL, the best possible, calls
until adapted, disagreements. Exit code 1 when a rank disagreed, nothing was tuned, or a
phase took more than 1.02 times NCCL's default.`,
		Args: wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if root == "" {
				exe, err := os.Executable()
				if err != nil {
					return fmt.Errorf("finding this program's folder: %w; give --root", err)
				}
				root = filepath.Dir(filepath.Dir(exe))
			}
			abs, err := filepath.Abs(root)
			if err != nil {
				return err
			}
			if o.Build, err = live.BuildIn(abs); err != nil {
				return err
			}
			if o.Seconds < 8 || o.Seconds > 600 {
				return usageError(fmt.Errorf("--seconds %d: want 8 to 600", o.Seconds))
			}
			learners, err := learnersOf(o.Policy)
			if err != nil {
				return err
			}
			if _, err := learners.New(o.Learner); err != nil {
				return usageError(fmt.Errorf("--learner: %w", err))
			}
			o.Budget = config.FormatShare(float64(budget))
			if f, ok := a.stdout.(*os.File); ok {
				o.Redraw = term.IsTerminal(int(f.Fd()))
			}
			ctx, release := connected(cmd.Context())
			defer release()
			return demo.Run(ctx, o)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().IntVar(&o.Seconds, "seconds", 40, "how long the rank processes run")
	cmd.Flags().StringVar(&o.Learner, "learner", models.DefaultLearner, "learner of the daemon")
	policyFlag(cmd, &o.Policy)
	budgetFlag(cmd, &budget)
	cmd.Flags().Uint64Var(&o.Seed, "seed", 1, "of everything random")
	cmd.Flags().BoolVar(&o.Keep, "keep", false, "leave the temporary folder with all logs")
	cmd.Flags().StringVar(&root, "root", "", "checkout that holds bin, lib and the tables (default: this program's)")
	complete(cmd, "learner", models.Names())
	return cmd
}
