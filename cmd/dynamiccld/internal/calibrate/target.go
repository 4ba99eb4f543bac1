package calibrate

import (
	"fmt"
	"slices"
	"strings"

	"dynamiccl/cmd/dynamiccld/internal/sweep"
	"dynamiccl/state"
)

// BuffersAll is plain buffers, and then registered ones where the ranks' NCCL takes names for calls on them.
const BuffersAll = "all"

// Buffers that can be asked for.
var Buffers = []string{sweep.BuffersPlain, sweep.BuffersRegistered, BuffersAll}

// target is one communicator and what it is called with: ranks have buffers of one kind all their life.
type target struct {
	state.Shape
	registered bool
}

// targets lists what is calibrated. Most programs register nothing, so what they call comes first.
func (o *Options) targets() (all []target) {
	if o.Buffers != sweep.BuffersRegistered {
		for _, s := range o.Shapes {
			all = append(all, target{Shape: s})
		}
	}
	if o.Buffers == sweep.BuffersRegistered || o.Buffers == BuffersAll {
		for _, s := range o.Shapes {
			if s.Nodes == 1 {
				all = append(all, target{Shape: s, registered: true})
			}
		}
	}
	return all
}

// checkBuffers says what is wrong with the buffers, or with the rest of the options on them.
func (o *Options) checkBuffers() error {
	switch {
	case o.Buffers == "" || o.Buffers == sweep.BuffersPlain:
		return nil
	case !slices.Contains(Buffers, o.Buffers):
		return fmt.Errorf("--buffers %q: want one of %s", o.Buffers, strings.Join(Buffers, ", "))
	}
	if on, err := sweep.OnRegistered(o.Collectives, false); err != nil || len(on) == 0 {
		_, err = sweep.OnRegistered(o.Collectives, true) // it says why there is none
		return err
	}
	for _, s := range o.Shapes {
		if s.Nodes > 1 && (o.Buffers == sweep.BuffersRegistered || !slices.ContainsFunc(o.targets(), func(t target) bool { return t.registered })) {
			return sweep.RegisteredOnNodes(s.Nodes)
		}
	}
	return nil
}

// collectives that are measured, by the names under which they are stored.
func (t target) collectives(o *Options) []string {
	if !t.registered {
		return o.Collectives
	}
	on, _ := sweep.OnRegistered(o.Collectives, false) // Check knows them all
	return on
}

// largest size.
func (t target) largest(o *Options) uint64 {
	if t.Nodes > 1 {
		return o.LargestNet
	}
	return o.Largest
}

// most is the largest call, shares rounded up.
func (t target) most(o *Options) (most uint64) {
	for _, b := range buckets(o, t) {
		most = max(most, b.bytes)
	}
	return most
}

func (t target) buffers() string {
	if t.registered {
		return sweep.BuffersRegistered
	}
	return sweep.BuffersPlain
}

// String names it to people.
func (t target) String() string {
	text := fmt.Sprintf("%d ranks", t.Ranks)
	if t.Nodes > 1 {
		text += fmt.Sprintf(" on %d nodes", t.Nodes)
	}
	if t.registered {
		text += ", registered buffers"
	}
	return text
}
