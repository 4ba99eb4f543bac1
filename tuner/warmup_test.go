package tuner

import (
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

func TestWarmUp(t *testing.T) {
	for _, c := range []struct {
		base, trials, want string
		at                 int
	}{
		{"default", "default gin/proxy/4 Ring/LL/1 gin/proxy/2", "default Ring/LL/1 gin/proxy/4 gin/proxy/4 gin/proxy/4 gin/proxy/2", 2},
		{"Ring/LL/1", "gin/gdaki/1", "gin/gdaki/1 gin/gdaki/1 gin/gdaki/1", 0},
		{"gin/proxy/2", "default gin/proxy/4 Ring/LL/1", "gin/proxy/4 default default default Ring/LL/1", 1},
		{"gin/proxy/2", "gin/proxy/4", "gin/proxy/4", -1},
		{"default", "default lsa/oneshot/1", "default lsa/oneshot/1", -1},
	} {
		trials := parse(t, strings.Fields(c.trials)...)
		got, at := warmUp(parse(t, c.base)[0], trials)
		if !slices.Equal(got, parse(t, strings.Fields(c.want)...)) || at != c.at {
			t.Errorf("%s in force, trials %s: %s, %d", c.base, c.trials, names(got), at)
		}
		if !slices.Equal(trials, parse(t, strings.Fields(c.trials)...)) {
			t.Errorf("trials %s became %s", c.trials, names(trials))
		}
	}
}

// A path that needs a call or two to be itself again is found all the same, and what that costs is paid for.
func TestPathThatNeedsAWarmUp(t *testing.T) {
	for _, name := range []string{agents.NameUCB, agents.NameThompson, agents.NameCoordinateDescent, agents.NameSuccessiveHalving} {
		p := newCaller(t, name, Config{Explore: true}, CommJoined{}, state.Bucket{Collective: actions.AllToAll, Log2Bytes: 14}, MarkProxy)
		var now state.Ns
		row, late := 0, 0 // row: calls on GIN one after the other
		for seq := range uint64(4000) {
			a := p.next()
			us := 30.0
			if a.Path == actions.PathGIN {
				us = []float64{270, 72, 12}[min(row, 2)]
				if seq >= 3900 {
					late++
				}
			}
			if row++; a.Path != actions.PathGIN {
				row = 0
			}
			now += 1e6
			ns := state.Ns(us * 1000 * (1 + 0.02*float64(seq%3)))
			p.tell(now, seq, a, a, ns)
			p.tick(now)
		}
		if late < 95 {
			t.Errorf("%s: %d of the last 100 calls were on GIN", name, late)
		}
	}
}

// NCCL's network rests while calls go over GIN. Once GIN is slower than what NCCL takes in force, calls are NCCL's, though one by
// itself takes longer still.
func TestNetworkThatNeedsAWarmUp(t *testing.T) {
	for _, name := range []string{agents.NameUCB, agents.NameThompson, agents.NameCoordinateDescent, agents.NameSuccessiveHalving} {
		p := newCaller(t, name, Config{Explore: true}, CommJoined{}, state.Bucket{Collective: actions.AllToAll, Log2Bytes: 14}, MarkProxy)
		var now state.Ns
		const slower, end = 3000, 6000 // calls: the links' bandwidth falls, and the last
		row, before, late := 0, 0, 0   // row: calls over NCCL's network one after the other
		for seq := range uint64(end) {
			a := p.next()
			us := []float64{72, 50, 35}[min(row, 2)]
			row++
			if a.Path == actions.PathGIN {
				us, row = 31, 0
				if seq >= slower {
					us = 61
				}
				if seq >= slower-100 && seq < slower {
					before++
				}
				if seq >= end-100 {
					late++
				}
			}
			now += 1e6
			ns := state.Ns(us * 1000 * (1 + 0.02*float64(seq%3)))
			p.tell(now, seq, a, a, ns)
			p.tick(now)
		}
		if before < 80 || late > 20 {
			t.Errorf("%s: of 100 calls %d were on GIN before its links became slow, and %d at the end", name, before, late)
		}
	}
}
