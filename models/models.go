// Package models holds the trained policies that are shipped, each with its card.
package models

import (
	_ "embed"
	"fmt"
	"slices"

	"dynamiccl/agents"
)

//go:embed policy.dynp
var policy []byte

// Policy decodes the shipped policy.
func Policy() (*agents.PolicyWeights, agents.PolicyCard, error) {
	w, card, err := agents.DecodePolicy(policy)
	if err != nil {
		return nil, card, fmt.Errorf("the policy in this program: %w", err)
	}
	return w, card, nil
}

// Names lists the learners that New makes: the policy first.
func Names() []string { return slices.Concat([]string{agents.NameLSTM}, agents.Names()) }

// New finds a learner by name, the shipped policy among them.
func New(name string) (agents.NewLearner, error) {
	if name != agents.NameLSTM {
		return agents.New(name)
	}
	w, card, err := Policy()
	if err != nil {
		return nil, err
	}
	return card.Learner(w)
}
