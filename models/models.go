// Package models holds the trained policies that are shipped, each with its card, and is the one place that knows all
// learners.
package models

import (
	_ "embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"dynamiccl/agents"
)

// DefaultLearner is what serve and demo run when nothing is said.
const DefaultLearner = agents.NameLSTM

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

// shipped is decoded when it is first asked for: its probe takes milliseconds, and most commands need no learner.
var shipped = sync.OnceValues(func() (agents.NewLearner, error) {
	w, card, err := Policy()
	if err != nil {
		return nil, err
	}
	return card.Learner(w)
})

// Names lists all learners: the policy first.
func Names() []string { return slices.Concat([]string{agents.NameLSTM}, agents.Names()) }

// New finds a learner by name, the shipped policy among them.
func New(name string) (agents.NewLearner, error) { return Learners{}.New(name) }

// Learners are all learners, with one policy for lstm.
type Learners struct {
	policy agents.NewLearner // nil: the shipped one
}

// maxPolicyBytes bounds a policy file: the shipped one has 150 KB.
const maxPolicyBytes = 64 << 20

// Open gives the learners with the policy of a file; "" is the shipped one. A file that is no policy, is damaged or was
// trained by another program is refused now, not when a learner is first made.
func Open(file string) (Learners, error) {
	if file == "" {
		return Learners{}, nil
	}
	l, err := open(file)
	if err != nil {
		return Learners{}, fmt.Errorf("policy file %s: %w; name a file that `dynamiccld train` wrote, or leave it out for the policy in this program", file, err)
	}
	return Learners{policy: l}, nil
}

func open(file string) (agents.NewLearner, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe that nobody writes into ends at once
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPolicyBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxPolicyBytes {
		return nil, fmt.Errorf("it is larger than %d bytes: %w", maxPolicyBytes, agents.ErrForeignPolicy)
	}
	w, card, err := agents.DecodePolicy(data)
	if err != nil {
		return nil, err
	}
	return card.Learner(w)
}

// New finds a learner by name.
func (l Learners) New(name string) (agents.NewLearner, error) {
	switch {
	case name == agents.NameLSTM && l.policy != nil:
		return l.policy, nil
	case name == agents.NameLSTM:
		return shipped()
	case !slices.Contains(Names(), name):
		return nil, fmt.Errorf("learner %q: %w (one of %s)", name, agents.ErrUnknownLearner, strings.Join(Names(), ", "))
	}
	return agents.New(name)
}
