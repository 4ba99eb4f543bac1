package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"dynamiccl/agents"
	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/models"
)

// learnersOf gives all learners, with the policy of --policy for lstm.
func learnersOf(policy string) (models.Learners, error) {
	l, err := models.Open(policy)
	if err != nil {
		return l, usageError(fmt.Errorf("--policy: %w", err))
	}
	return l, nil
}

// policyFlag adds --policy to a command that is no daemon.
func policyFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "policy", "", "policy file of 'dynamiccld train' that learner lstm runs (default: the one in this program)")
}

// shareValue is a flag that holds a share of time.
type shareValue float64

func (v *shareValue) String() string { return config.FormatShare(float64(*v)) }
func (v *shareValue) Type() string   { return "share" }
func (v *shareValue) Set(s string) error {
	share, err := config.ParseShare(s)
	*v = shareValue(share)
	return err
}

// budgetFlag adds --explore-budget to a command that is no daemon.
func budgetFlag(cmd *cobra.Command, share *shareValue) {
	*share = agents.DefaultExploreBudget
	cmd.Flags().Var(share, "explore-budget", "share of time that exploration may lose, 0% to 50%")
}

// learnerBatch is how many trials a learner proposes at once where results come back at every call. Coordinate descent's
// subspaces advance side by side: in twos its regret after 64 calls is 13 to 27% less than one by one on the quiet and
// network-load socket tables, and 11% more on NVLink (5% noise, 5 seeds).
func learnerBatch(name string) int {
	if name == agents.NameCoordinateDescent {
		return 2
	}
	return 1
}
