package agents

import (
	"errors"
	"fmt"
	"strings"
)

// ErrUnknownLearner is returned for a learner's name that is not in Names.
var ErrUnknownLearner = errors.New("unknown learner")

// Names of the learners, as serve --learner takes them.
const (
	NameDefault           = "default"
	NameCoordinateDescent = "coordinate-descent"
	NameUCB               = "ucb"
	NameThompson          = "thompson"
	NameSuccessiveHalving = "successive-halving"
)

var learners = []struct {
	name string
	make NewLearner
}{
	{NameDefault, newDefault},
	{NameCoordinateDescent, newDescent},
	{NameUCB, newUCB},
	{NameThompson, newThompson},
	{NameSuccessiveHalving, newHalving},
}

// Names lists the learners.
func Names() []string {
	names := make([]string, len(learners))
	for i, l := range learners {
		names[i] = l.name
	}
	return names
}

// New finds a learner by name.
func New(name string) (NewLearner, error) {
	for _, l := range learners {
		if l.name == name {
			return l.make, nil
		}
	}
	return nil, fmt.Errorf("learner %q: %w (one of %s)", name, ErrUnknownLearner, strings.Join(Names(), ", "))
}
