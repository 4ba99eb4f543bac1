package train

import (
	"fmt"
	"strings"

	"dynamiccl/agents"
)

// Objective is what the heads learn to say.
type Objective string

// Imitation of the oracle: at every decision the true cost of every action, which a simulator knows, is what the heads
// should have said (they learn the posterior over costs given the calls so far). QLearning takes only what a policy on a
// real machine would see: the cost that the next call was observed to have (recurrent Q-learning with discount 0: calls
// do not change the fabric, so the value of an action is its cost, and exploring is left to the learned uncertainty).
// ActorCritic is recurrent advantage actor-critic, from the same costs: QLearning is its critic, and the choice itself is
// learned from what the calls after it cost, so that widths say what exploring is worth and not only what is not known.
const (
	Imitation   Objective = "imitation"
	QLearning   Objective = "q-learning"
	ActorCritic Objective = "actor-critic"
)

// Objectives lists them.
var Objectives = []Objective{Imitation, QLearning, ActorCritic}

// Actor is how a policy that was trained for it chooses.
func (o Objective) Actor() agents.Actor {
	if o != ActorCritic {
		return agents.Actor{}
	}
	return agents.Actor{Optimism: optimism}
}

func (o Objective) check() error {
	var names []string
	for _, known := range Objectives {
		if o == known {
			return nil
		}
		names = append(names, string(known))
	}
	return fmt.Errorf("recipe: unknown objective %q (one of %s)", string(o), strings.Join(names, ", "))
}
