package tuner_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// With fixed numerics no plan ever names anything for a collective that adds up, whatever was stored or is in force, and
// what was stored of it is not overwritten. Copies are tuned as ever.
func TestFixedNumerics(t *testing.T) {
	quiet := load(t, "quiet")
	buckets := quiet.Buckets()
	sum := func(b state.Bucket) bool {
		return b.Collective != actions.AllGather && b.Collective != actions.Broadcast
	}
	if !slices.ContainsFunc(buckets, sum) || slices.IndexFunc(buckets, func(b state.Bucket) bool { return !sum(b) }) < 0 {
		t.Fatal("the table holds not both kinds of collectives")
	}
	for _, learner := range []string{agents.NameCoordinateDescent, agents.NameUCB} {
		for _, whole := range []bool{false, true} { // of one communicator, or of all
			t.Run(fmt.Sprintf("%s/%v", learner, whole), func(t *testing.T) {
				g := newGroup(t, learner, true, quiet, 1)
				if whole {
					newLearner, err := agents.New(learner)
					if err != nil {
						t.Fatal(err)
					}
					if g.core, err = tuner.New(tuner.Config{NewLearner: newLearner, Explore: true, FixedNumerics: true}); err != nil {
						t.Fatal(err)
					}
				}
				inForce := map[state.Bucket]actions.Action{}
				var prior []tuner.Learned
				for i, b := range buckets {
					best, ns, _ := quiet.Best(b)
					if i%2 == 0 {
						inForce[b] = best
					} else {
						prior = append(prior, tuner.Learned{Key: tuner.Key{Bucket: b}, Action: best, CostNs: ns, Default: 2 * ns, Calls: 100})
					}
				}
				g.join(tuner.CommJoined{Explore: true, FixedNumerics: !whole, InForce: inForce, Prior: prior})
				g.marks(buckets)
				copies := 0
				for range 100 * len(buckets) {
					g.run(buckets, 1)
					if g.next == nil {
						continue
					}
					for _, e := range g.next.Entries {
						if sum(e.Bucket) && !onlyDefault(e) {
							t.Fatalf("a plan has %+v", e)
						}
						if !onlyDefault(e) {
							copies++
						}
					}
				}
				if copies == 0 {
					t.Error("copies were not tuned")
				}
				g.step(tuner.Advised{Comm: comm, Prior: prior})
				g.step(tuner.Tick{})
				for _, e := range g.next.Entries {
					if sum(e.Bucket) && !onlyDefault(e) {
						t.Errorf("after an import a plan has %+v", e)
					}
				}
				for _, v := range g.core.BucketsOf(comm) { // what `why` says of it, whoever wants it so
					if v.Fixed != sum(v.Bucket) || strings.HasPrefix(v.Note, "fixed numerics: "+v.Bucket.Collective.String()) != v.Fixed {
						t.Errorf("%v: fixed %v, note %q", v.Bucket, v.Fixed, v.Note)
					}
				}
				g.step(tuner.CommLeft{Comm: comm})
				for _, l := range g.learned {
					if sum(l.Key.Bucket) {
						t.Errorf("the store is told of %v", l.Key.Bucket)
					}
				}
			})
		}
	}
}

// onlyDefault says that an entry leaves everything to NCCL: its default may be measured.
func onlyDefault(e tuner.Entry) bool {
	return e.Base == actions.Default && !slices.ContainsFunc(e.Trials, func(a actions.Action) bool { return a != actions.Default })
}

// The ledger of a bucket says what the table says that choosing was worth.
func TestLedgerIsTrue(t *testing.T) {
	quiet := load(t, "quiet")
	buckets := quiet.Buckets()
	g := newGroup(t, agents.NameCoordinateDescent, true, quiet, 1)
	g.join(tuner.CommJoined{Explore: true})
	g.marks(buckets)
	g.run(buckets, 300*len(buckets))
	var told tuner.Ledger
	var cost, standard float64
	views := g.core.BucketsOf(comm)
	for _, v := range views {
		told.Add(v.Ledger)
		cost += g.cost[v.Bucket]
		ns, _ := quiet.Default(v.Bucket)
		standard += ns * float64(v.Ledger.Calls)
	}
	if len(views) != len(buckets) || told.Calls < uint64(g.seq)*9/10 || told.Trials == 0 {
		t.Fatalf("%d buckets, %d of %d calls, %d trials", len(views), told.Calls, g.seq, told.Trials)
	}
	if math.Abs(told.DefaultNs/standard-1) > 0.05 {
		t.Errorf("NCCL's default would have taken %.0f ns, the table says %.0f", told.DefaultNs, standard)
	}
	got, want := 1-(told.SavedNs-told.TrialNs)/told.DefaultNs, cost/standard
	if math.Abs(got-want) > 0.03 || want > 0.98 {
		t.Errorf("the ledger says %.3f of NCCL's default, the table %.3f", got, want)
	}
	if g.core.BucketsOf(comm+1) != nil {
		t.Error("a communicator that is not known has buckets")
	}
}

// Where nothing may be explored the view says what the store knew of the choice, until it is measured.
func TestStoredAdvantageIsShown(t *testing.T) {
	quiet := load(t, "quiet")
	b := quiet.Buckets()[0]
	best, bestNs, _ := quiet.Best(b)
	g := newGroup(t, agents.NameCoordinateDescent, true, quiet, 1)
	g.join(tuner.CommJoined{Explore: false, Prior: []tuner.Learned{{Key: tuner.Key{Bucket: b}, Action: best, CostNs: bestNs, Default: 1.5 * bestNs, Calls: 9}}})
	g.marks([]state.Bucket{b})
	g.step(tuner.Tick{})
	if v := g.core.BucketsOf(comm)[0]; v.Choice != best || math.Abs(v.Stored-1.5) > 1e-9 || v.Ledger.Calls != 0 {
		t.Errorf("choice %v, stored %.2f, %d calls; want %v, 1.5, none", v.Choice, v.Stored, v.Ledger.Calls, best)
	}
	free := newGroup(t, agents.NameCoordinateDescent, true, quiet, 1)
	free.join(tuner.CommJoined{Explore: true})
	free.marks([]state.Bucket{b})
	free.run([]state.Bucket{b}, 300)
	if v := free.core.BucketsOf(comm)[0]; v.Stored != 0 {
		t.Errorf("%v was never stored and says %.2f", v.Choice, v.Stored)
	}
}

// Since when a choice holds is stored with it, and goes on from there while it holds; another choice begins now, and of one that
// only ranks still have nobody knows.
func TestSinceIsKept(t *testing.T) {
	quiet := load(t, "quiet")
	b := quiet.Buckets()[0]
	best, bestNs, _ := quiet.Best(b)
	const since = state.Ns(1_760_000_000_000_000_000)
	standard, _ := quiet.Default(b)
	evidence := map[actions.Action]tuner.Estimate{actions.Default: {N: 20, MeanNs: standard, VarLog: 1e-4}, best: {N: 80, MeanNs: bestNs, VarLog: 1e-4}}
	stored := func(a actions.Action) []tuner.Learned {
		return []tuner.Learned{{Key: tuner.Key{Bucket: b}, Action: a, CostNs: bestNs, Default: standard, Calls: 100, SinceNs: since, Evidence: evidence}}
	}
	for _, c := range []struct {
		name    string
		join    tuner.CommJoined
		want    actions.Action
		sinceNs state.Ns
	}{
		{"stored", tuner.CommJoined{Prior: stored(best)}, best, since},
		{"the default, stored", tuner.CommJoined{Prior: stored(actions.Default)}, actions.Default, since},
		{"not stored", tuner.CommJoined{}, actions.Default, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGroup(t, agents.NameCoordinateDescent, true, quiet, 1)
			g.join(c.join)
			g.marks([]state.Bucket{b})
			g.step(tuner.Tick{})
			if v := g.core.BucketsOf(comm)[0]; v.Choice != c.want || v.SinceNs != c.sinceNs {
				t.Errorf("%v since %d; want %v since %d", v.Choice, v.SinceNs, c.want, c.sinceNs)
			}
		})
	}
	g := newGroup(t, agents.NameCoordinateDescent, true, quiet, 1)
	g.join(tuner.CommJoined{Explore: true, Prior: stored(actions.Default)})
	g.marks([]state.Bucket{b})
	g.run([]state.Bucket{b}, 600)
	v := g.core.BucketsOf(comm)[0]
	if v.Choice == actions.Default || v.SinceNs <= 0 || v.SinceNs >= since {
		t.Errorf("%v since %d; want another choice, taken by this clock", v.Choice, v.SinceNs)
	}
	if l := g.learned[len(g.learned)-1]; l.Action == v.Choice && l.SinceNs != v.SinceNs {
		t.Errorf("learned since %d, shown since %d", l.SinceNs, v.SinceNs)
	}
}
