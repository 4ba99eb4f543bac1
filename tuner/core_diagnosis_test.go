package tuner_test

import (
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// diagnosed gives what is shown of the first bucket that has a diagnosis.
func diagnosed(all []tuner.BucketView) (v tuner.BucketView, ok bool) {
	for _, v := range all {
		if v.Diagnosis != agents.DiagnosisNone {
			return v, true
		}
	}
	return v, false
}

// A diagnosis is stored as soon as it is made, with its instant, also where the choice stays; the next life of the communicator
// shows it as the store's word, until it has one of its own.
func TestDiagnosisIsKept(t *testing.T) {
	quiet, busy := load(t, "quiet"), load(t, "network-load")
	g := newGroup(t, agents.NameDefault, true, quiet, 1)
	g.join(tuner.CommJoined{Explore: true})
	buckets := quiet.Buckets()
	g.marks(buckets)
	g.run(buckets, 3000)
	if v := g.core.BucketsOf(comm)[0]; v.MeasuredNs == 0 || v.MeasuredNs > 3_000_000 || v.DiagnosedBefore {
		t.Errorf("measured from %d on, said before %t", v.MeasuredNs, v.DiagnosedBefore)
	}
	g.learned = nil
	g.table = busy
	for n := 0; n < 100; n++ {
		if _, ok := diagnosed(g.core.BucketsOf(comm)); ok {
			break
		}
		g.run(buckets, 20)
	}
	g.run(buckets, 2000) // the default's cost in the new condition, without which nothing is stored
	v, ok := diagnosed(g.core.BucketsOf(comm))
	if !ok || v.DiagnosisNs < 3_000_000 || v.DiagnosedBefore {
		t.Fatalf("%v at %d, before %t", v.Diagnosis, v.DiagnosisNs, v.DiagnosedBefore)
	}
	var kept []tuner.Learned
	for _, l := range g.learned {
		if l.Key.Bucket == v.Bucket && l.DiagnosisNs == v.DiagnosisNs && l.Diagnosis == v.Diagnosis {
			kept = []tuner.Learned{l}
		}
	}
	if kept == nil {
		t.Fatalf("of %d records none has %v at %d", len(g.learned), v.Diagnosis, v.DiagnosisNs)
	}

	again := newGroup(t, agents.NameDefault, true, busy, 2)
	again.join(tuner.CommJoined{Explore: true, Prior: kept})
	again.marks(buckets)
	again.run(buckets, 3000)
	shown, ok := diagnosed(again.core.BucketsOf(comm))
	if !ok || shown.Bucket != v.Bucket || shown.DiagnosisNs != v.DiagnosisNs || !shown.DiagnosedBefore || shown.MeasuredNs == 0 {
		t.Fatalf("%v of %v at %d, before %t; want what was stored", shown.Diagnosis, shown.Bucket, shown.DiagnosisNs, shown.DiagnosedBefore)
	}
	again.step(tuner.CommLeft{Comm: comm})
	found := false
	for _, l := range again.learned {
		found = found || l.Key.Bucket == v.Bucket && l.DiagnosisNs == v.DiagnosisNs
	}
	if !found {
		t.Error("what was stored is lost where it was not said anew")
	}

	other := newGroup(t, agents.NameDefault, true, busy, 3)
	other.join(tuner.CommJoined{Explore: true, Prior: kept})
	other.marks(buckets)
	other.run(buckets, 3000)
	// Another set of choices makes the bucket anew: what was said of it stays.
	other.step(tuner.Marks{Comm: comm, Bucket: v.Bucket, Set: classicMarks(v.Bucket.Collective), Differ: true})
	if same, ok := diagnosed(other.core.BucketsOf(comm)); !ok || same.DiagnosisNs != v.DiagnosisNs || !same.DiagnosedBefore {
		t.Errorf("after a change of its set %v at %d", same.Diagnosis, same.DiagnosisNs)
	}

	// Its own word comes in the place of the store's.
	other.marks(buckets)
	other.run(buckets, 3000)
	other.table = quiet
	other.run(buckets, 3000)
	own := 0
	for _, now := range other.core.BucketsOf(comm) {
		if now.DiagnosisNs > 0 && now.DiagnosisNs != v.DiagnosisNs {
			own++
			if now.DiagnosedBefore {
				t.Errorf("%+v: its own word is shown as the store's", now)
			}
		}
	}
	if own == 0 {
		t.Error("the fabric has changed, and nothing is said")
	}
}

// An imported choice, and the store's of a bucket without a diagnosis, say nothing.
func TestNoDiagnosisIsNone(t *testing.T) {
	b := state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}
	quiet := load(t, "quiet")
	g := newGroup(t, agents.NameDefault, true, quiet, 1)
	g.join(tuner.CommJoined{Prior: []tuner.Learned{{Key: tuner.Key{Bucket: b}, Diagnosis: agents.DiagnosisCongestion}}})
	g.marks([]state.Bucket{b})
	if v := g.core.BucketsOf(comm)[0]; v.Diagnosis != agents.DiagnosisNone || v.DiagnosedBefore || v.MeasuredNs != 0 {
		t.Errorf("%+v", v)
	}
}

// A program that ends right behind an alarm leaves what it had learned: nothing was measured in the new condition yet, and what
// was known of the old one is the newest that anybody knows.
func TestAnAlarmForgetsNothing(t *testing.T) {
	quiet, busy := load(t, "quiet"), load(t, "network-load")
	buckets := quiet.Buckets()
	for seed := range uint64(5) {
		g := newGroup(t, agents.NameDefault, true, quiet, seed)
		g.join(tuner.CommJoined{Explore: true})
		g.marks(buckets)
		g.run(buckets, 3000)
		g.table = busy
		for before := g.core.Totals().Alarms; g.core.Totals().Alarms < before+3; {
			g.run(buckets, 1)
		}
		unmeasured := 0
		seen := g.core.BucketsOf(comm)
		g.learned = nil
		g.step(tuner.CommLeft{Comm: comm})
		for _, v := range seen {
			if len(v.Choices) == 0 || v.Choices[0].Action != actions.Default {
				unmeasured++
			}
			if at := slices.IndexFunc(g.learned, func(l tuner.Learned) bool { return l.Key.Bucket == v.Bucket }); at < 0 {
				t.Errorf("seed %d: nothing is kept of %v", seed, v.Bucket)
			} else if l := g.learned[at]; l.Calls != v.Calls || l.Action != v.Choice || l.Default <= 0 {
				t.Errorf("seed %d: of %d calls of %v, choice %v, there is kept %+v", seed, v.Calls, v.Bucket, v.Choice, l)
			}
		}
		if unmeasured == 0 {
			t.Errorf("seed %d: every bucket's default was measured behind the alarms: nothing is shown", seed)
		}
	}
}
