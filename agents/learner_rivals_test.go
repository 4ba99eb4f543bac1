package agents

import (
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

func parsed(t *testing.T, names string) (set []actions.Action) {
	t.Helper()
	for _, name := range strings.Fields(names) {
		a, err := actions.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		set = append(set, a)
	}
	return set
}

const ginContexts = "default Ring/LL/4 gin/proxy/4 gin/gdaki/1 gin/gdaki/2 gin/gdaki/4 gin/gdaki/4/c1 gin/gdaki/8 gin/gdaki/8/c1 gin/gdaki/16 gin/gdaki/16/c1"

func TestRivals(t *testing.T) {
	set := parsed(t, ginContexts)
	for winner, want := range map[string]string{
		"default":         "",
		"Ring/LL/4":       "",
		"gin/proxy/4":     "",
		"gin/gdaki/1":     "gin/gdaki/16",
		"gin/gdaki/4":     "gin/gdaki/4/c1 gin/gdaki/1 gin/gdaki/16",
		"gin/gdaki/8/c1":  "gin/gdaki/8 gin/gdaki/4/c1 gin/gdaki/16/c1",
		"gin/gdaki/16/c1": "gin/gdaki/16 gin/gdaki/4/c1",
	} {
		var got []actions.Action
		for _, r := range rivalsOf(nil, set, slices.Index(set, parsed(t, winner)[0])) {
			got = append(got, set[r.at])
		}
		if !slices.Equal(got, parsed(t, want)) {
			t.Errorf("%s: %v, want %s", winner, got, want)
		}
	}
}

// Rivals are tried in a new condition whatever is measured of it before anybody is asked, in batches and one by one; a trial that is lost is
// proposed once more, and what was measured is not. The choice to stay on does not suffer.
func TestRivalsAreTried(t *testing.T) {
	set := parsed(t, ginContexts)
	winner, rivals := parsed(t, "gin/gdaki/16")[0], parsed(t, "gin/gdaki/16/c1 gin/gdaki/1")
	call := func(a actions.Action) state.Observation {
		ns := state.Ns(20e3)
		switch {
		case a == actions.Default:
			ns = 60e3
		case a == winner:
			ns = 10e3
		}
		return state.Observation{Action: a, Ran: a, SignalNs: ns}
	}
	for _, name := range adaptive() {
		for _, room := range []int{1, 12} {
			for _, seen := range []string{"", "default default default", "gin/gdaki/16", "default default default gin/gdaki/16 gin/gdaki/16 gin/gdaki/16"} {
				for _, lost := range []bool{false, true} {
					l := makeLearner(t, name, set, bucketOf(16), nil, 1)
					for range 4 {
						for _, a := range set {
							l.Observe(call(a))
						}
					}
					l.Shift(DiagnosisUnknown)
					for _, a := range parsed(t, seen) {
						l.Observe(call(a))
					}
					proposed := map[actions.Action]int{}
					for range 3 * rivalProposals {
						base, trials := l.Propose(room)
						if strings.HasPrefix(seen, "default") && strings.HasSuffix(seen, "16") && base != winner {
							t.Fatalf("%s: stays on %s", name, base)
						}
						for i, a := range trials {
							if slices.Contains(rivals, a) && slices.Index(trials, a) == i {
								proposed[a]++
							}
							if !slices.Contains(rivals, a) {
								l.Observe(call(a))
							}
						}
						l.Observe(call(winner)) // stays in force until it is judged
						if !lost {
							for a := range proposed {
								l.Observe(call(a))
							}
						}
					}
					for _, a := range rivals {
						if n := proposed[a]; n < 1 || lost && n < rivalProposals {
							t.Errorf("%s, room for %d, seen %q, lost %v: %s is proposed %d times", name, room, seen, lost, a, n)
						}
					}
				}
			}
		}
	}
}

// In batches a rival has as many calls as a guard wants of a choice, one by one a single one. None has what is measured, what finds no room, and
// all while nobody knows whether what was best before is any good still.
func TestRivalsInABatch(t *testing.T) {
	set := parsed(t, ginContexts)
	former := parsed(t, "gin/gdaki/4")[0]
	before := newArms(set)
	for range 3 {
		before.add(&state.Observation{Action: actions.Default, SignalNs: 40e3})
		before.add(&state.Observation{Action: former, SignalNs: 10e3})
	}
	for _, c := range []struct {
		room       int
		formerNs   state.Ns // in the new condition; 0: not measured
		seen, want string
	}{
		{12, 20e3, "", "gin/gdaki/4/c1 gin/gdaki/4/c1 gin/gdaki/1 gin/gdaki/1 gin/gdaki/16 gin/gdaki/16"},
		{12, 20e3, "gin/gdaki/1", "gin/gdaki/4/c1 gin/gdaki/4/c1 gin/gdaki/16 gin/gdaki/16"},
		{5, 20e3, "", "gin/gdaki/4/c1 gin/gdaki/4/c1 gin/gdaki/1 gin/gdaki/1"},
		{1, 20e3, "", "gin/gdaki/4/c1"},
		{1, 20e3, "gin/gdaki/4/c1 gin/gdaki/1", "gin/gdaki/16"},
		{0, 20e3, "", ""},
		{12, 0, "", ""},
		{2, 100e3, "", "gin/gdaki/4/c1 gin/gdaki/4/c1"},
		{2, 150e3, "", ""},
		{2, 150e3, "default", "gin/gdaki/4/c1 gin/gdaki/4/c1"}, // which has become as slow
	} {
		now := newKnown(Task{Set: set, Bucket: bucketOf(16)})
		now.memory.save(before)
		now.challenge()
		now.arms.add(&state.Observation{Action: former, SignalNs: c.formerNs})
		for _, a := range parsed(t, c.seen) {
			now.arms.add(&state.Observation{Action: a, SignalNs: 100e3})
		}
		if got := now.appendRivals(nil, c.room); !slices.Equal(got, parsed(t, c.want)) {
			t.Errorf("room for %d, %d ns, seen %q: %v, want %s", c.room, c.formerNs, c.seen, got, c.want)
		}
	}
}
