package main

import (
	"errors"

	"github.com/spf13/cobra"

	"dynamiccl/cmd/dynamiccld/internal/stdioagent"
)

func (a *app) agentCommand() *cobra.Command {
	var stdio bool
	var policy string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Be a learner that another program drives, one JSON object a line",
		Long: `Answer requests on standard input, one JSON object a line, with one line each on
standard output. The learner runs as in the daemon: with detector, diagnosis and guard.

  {"op":"reset","learner":"lstm","seed":1,
   "topology":{"ranks":8,"nodes":1,"nics":0,"transport":"nvlink"},
   "buckets":[{"id":0,"collective":"AllReduce","bytes":1024,"actions":[{"path":"default"},
    {"path":"collective","algorithm":"Ring","protocol":"LL","channels":8}]}]}
                             starts anew; answers {"ok":true}
  {"op":"ask","bucket":0}    what should the next call run? {"action":1,"why":"..."}
  {"op":"tell","bucket":0,"action":1,"counter_us":9.1,"signal_us":9.9}
                             what a call took; answers {"ok":true,"diagnosis":"none"}
  {"op":"quit"}              ends, as the end of the input does

Actions are {"path"} and, by path, algorithm, protocol, channels (CTAs of lsa and gin),
contexts (of gin: that its CTAs share; without channels a CTA for each), flat (of gin: not
the hierarchical kernel), threads, backend,
kernel (of lsa: oneshot, twoshot, bulk, direct); action 0 is NCCL's default. Several asks may be open
at once; a tell may be late, missing, or of another action than was asked. A line that is wrong is
answered {"error":"..."} and changes nothing.`,
		Example: `  dynamiccld agent --stdio < session.jsonl`,
		Args:    wantArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !stdio {
				return usageError(errors.New("agent speaks on standard input and output only: give --stdio"))
			}
			learners, err := learnersOf(policy)
			if err != nil {
				return err
			}
			agent, err := stdioagent.New(learners.New, learnerBatch)
			if err != nil {
				return err
			}
			return agent.Serve(cmd.Context(), a.stdin, a.stdout)
		},
	}
	cmd.Flags().BoolVar(&stdio, "stdio", false, "speak on standard input and output")
	policyFlag(cmd, &policy)
	return cmd
}
