package store

import (
	"slices"
	"testing"

	"dynamiccl/actions"
)

// Nothing that a daemon learns takes a refusal back, neither one that it has had nor one that somebody wrote into the file while it kept its choices in memory.
func TestRefusalsStay(t *testing.T) {
	path := storePath(t)
	refusing := func(refused ...actions.Action) (l []actions.Action) { return refused }
	at := learned(3, 1000)
	at.Refused = refusing(treeLL)
	r := newResilient(t, path, Options{})
	r.put(at)
	r.put(learned(3, 900)) // of a communicator that was there before the refusal
	if got := r.load()[0]; !slices.Equal(got.Refused, refusing(treeLL)) || got.CostNs != 900 {
		t.Errorf("after another Put: %+v", got)
	}
	r.flush(nil)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}

	calibrate := mustOpen(t, path, Options{})
	r = newResilient(t, path, Options{})
	if r.Stats().Failing == nil {
		t.Fatal("the file is not locked")
	}
	r.put(learned(3, 800))
	at.Action, at.CostNs, at.Refused = actions.Default, at.Default, refusing(ring24)
	delete(at.Evidence, ring24)
	if err := calibrate.Put(append(batchOf(1, 1), at)); err != nil {
		t.Fatal(err)
	}
	if err := calibrate.Close(); err != nil {
		t.Fatal(err)
	}
	r.flush(nil)
	r.put(learned(3, 700))
	r.flush(nil)
	got := r.load()[1]
	if _, tried := got.Evidence[ring24]; got.Action != actions.Default || !slices.Equal(got.Refused, refusing(ring24)) || tried {
		t.Errorf("what was refused meanwhile: %+v", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if all := loadAll(t, mustOpen(t, path, Options{ReadOnly: true})); !slices.Equal(all[1].Refused, refusing(ring24)) {
		t.Errorf("in the file: %+v", all[1])
	}
}
