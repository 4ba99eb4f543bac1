package main

import (
	"slices"

	"github.com/spf13/cobra"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/render"
)

func (a *app) linksCommand() *cobra.Command {
	var asJSON bool
	var comm string
	cmd := &cobra.Command{
		Use:   "links",
		Short: "Show what puts over GIN take, by rank, peer and context",
		Long: `Show what the puts of our kernels on NCCL's GIN take on each way from a rank to a peer
over each context: until the source was read (counter), and until the peer's answer to the
signal was back (signal), as medians by size; and what the detector made of a change. About
one call in 256 is timed. The wait for ranks that come late is not in it. Of ranks on several
hosts the daemon of rank 0's host knows.`,
		Example: "  dynamiccld links\n  dynamiccld links --comm 7f3a52c1009be011 --json",
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, cfg, err := a.client(cmd.Flags())
			if err != nil {
				return err
			}
			all, err := client.Links(cmd.Context())
			if err != nil {
				return err
			}
			of := ""
			if comm != "" {
				of = " of communicator " + comm
				all = slices.DeleteFunc(all, func(l control.Link) bool { return l.Comm != comm })
			}
			if len(all) == 0 {
				return a.nothing(unknown("daemon of %s has seen no puts over GIN%s: about one call in 256 of the kernels gin/... is timed, and of ranks on several hosts the daemon of rank 0's host knows; `dynamiccld status` shows which communicators have GIN",
					cfg.Dir, of), asJSON, []control.Link{})
			}
			if asJSON {
				return render.JSON(a.stdout, all)
			}
			return render.Links(a.stdout, all, a.now())
		},
	}
	a.dirFlag(cmd)
	commFlag(cmd, &comm)
	jsonFlag(cmd, &asJSON)
	return cmd
}
