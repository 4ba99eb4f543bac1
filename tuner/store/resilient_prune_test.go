package store

import (
	"os"
	"testing"
	"time"

	"dynamiccl/state"
	"dynamiccl/tuner"
)

// ofVersion is what is known for one shape of many.
func ofVersion(version, records int) []tuner.Learned {
	batch := batchOf(records, 5000)
	for i := range batch {
		batch[i].Key.NCCLVersion, batch[i].SeenNs = version, 0
	}
	return batch
}

func (r *resilientTest) versions() (found []int) {
	for v := range 100 {
		if len(r.Load(h200Key.Machine, h200Key.GPUArch, v, h200Key.Shape)) > 0 {
			found = append(found, v)
		}
	}
	return found
}

// A full store forgets the shape that was not there for longest, in memory and in the file, and never what it is told now.
func TestResilientForgetsTheOldest(t *testing.T) {
	path := storePath(t)
	r := newResilient(t, path, Options{})
	r.limit = 30
	for v := 1; v <= 3; v++ {
		r.put(ofVersion(v, 10)...)
		r.flush(nil)
		r.clock = r.clock.Add(2 * seenEvery)
	}
	r.Seen(h200Key.Machine, h200Key.GPUArch, 1, h200Key.Shape)
	if st := r.Stats(); st.Dirty != 10 {
		t.Errorf("%d records are to be written as seen, want 10", st.Dirty)
	}
	r.flush(nil)
	r.clock = r.clock.Add(time.Hour)
	r.Seen(h200Key.Machine, h200Key.GPUArch, 1, h200Key.Shape)
	if st := r.Stats(); st.Dirty != 0 {
		t.Errorf("%d records are to be written an hour later, want none", st.Dirty)
	}
	r.put(ofVersion(4, 10)...)
	check := func(r *resilientTest, want ...int) {
		t.Helper()
		got := r.versions()
		if len(got) != len(want) {
			t.Fatalf("known are %v, want %v", got, want)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("known are %v, want %v", got, want)
			}
		}
	}
	check(r, 1, 3, 4)
	r.put(ofVersion(2, 1)...) // learned anew before the file has forgotten it
	check(r, 1, 2, 4)
	r.flush(nil)
	r.said("the store was full", 1)
	if st := r.Stats(); st.Records != 21 || st.Lost != 0 || st.Dirty != 0 {
		t.Errorf("%+v", st)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again := newResilient(t, path, Options{})
	check(again, 1, 2, 4)
	if st := again.Stats(); st.Records != 21 {
		t.Errorf("the file has %d records, want 21", st.Records)
	}
}

// A file with more than fits keeps what was seen last. A host whose clock was ahead once does not keep its records for ever.
func TestResilientTakesTheNewestOfAFile(t *testing.T) {
	path := storePath(t)
	now := time.Now()
	s := mustOpen(t, path, Options{})
	for v := 1; v <= 4; v++ {
		batch := ofVersion(v, 10)
		for i := range batch {
			batch[i].SeenNs = state.Ns(now.Add(time.Duration(v-10) * time.Hour).UnixNano())
			if v == 1 {
				batch[i].SeenNs = state.Ns(now.Add(1000 * time.Hour).UnixNano())
			}
		}
		if err := s.Put(batch); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	r := newResilient(t, "", Options{})
	r.Resilient.path, r.limit = path, 20
	r.flush(nil)
	if got := r.versions(); len(got) != 2 || got[0] != 1 || got[1] != 4 {
		t.Fatalf("known are %v, want 1 and 4", got)
	}
	r.clock = r.clock.Add(time.Hour)
	r.put(ofVersion(4, 10)...) // so the other is older now
	r.put(ofVersion(5, 10)...)
	if got := r.versions(); len(got) != 2 || got[0] != 4 || got[1] != 5 {
		t.Fatalf("known are %v, want 4 and 5", got)
	}
	r.flush(nil)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, path, Options{})
	if st, err := s.Stats(); err != nil || st.Records != 20 {
		t.Errorf("%d records in the file, %v; want 20", st.Records, err)
	}
}

// However many shapes come and go, the file stays as large as what it holds.
func TestFileIsBounded(t *testing.T) {
	r := newResilient(t, storePath(t), Options{})
	r.limit = 400
	size := func() int64 {
		info, err := os.Stat(r.path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	var early int64
	for v := range 60 {
		r.put(ofVersion(v, 200)...)
		r.flush(nil)
		r.clock = r.clock.Add(time.Hour)
		if v == 5 {
			early = size()
		}
	}
	if late := size(); late > 2*early {
		t.Errorf("the file has %d bytes after 6 shapes and %d after 60", early, late)
	}
}

// While the file cannot be written, for months if need be, what it is to forget takes no more memory than what is known; once it can be
// written it holds what memory holds.
func TestForgottenIsBoundedWithoutAFile(t *testing.T) {
	path := storePath(t)
	other := mustOpen(t, path, Options{})
	if err := other.Put(ofVersion(99, 30)); err != nil {
		t.Fatal(err)
	}
	r := newResilient(t, path, Options{})
	r.limit = 30
	for v := 1; v <= 60; v++ {
		r.put(ofVersion(v, 10)...)
		r.clock = r.clock.Add(time.Hour)
	}
	r.flush(ErrLocked)
	if n := len(r.forgotten); n == 0 || n > r.limit {
		t.Errorf("%d keys are to be forgotten by a file, of at most %d records in memory", n, r.limit)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	r.flush(nil)
	if st := r.Stats(); st.Records != 30 || st.Dirty != 0 || len(r.forgotten) != 0 {
		t.Errorf("%+v, %d still to be forgotten", st, len(r.forgotten))
	}
	if got := r.versions(); len(got) != 3 || got[0] != 58 {
		t.Errorf("known are %v, want 58 to 60", got)
	}
	if st, err := r.store.Stats(); err != nil || st.Records != 30 {
		t.Errorf("%d records in the file, %v; want 30", st.Records, err)
	}
}

// A host whose clock was ahead, and is set back under a daemon: what was seen in the future is seen now once its communicator comes,
// and not the newest until the clock has caught up.
func TestClockIsSetBackUnderAStore(t *testing.T) {
	r := newResilient(t, "", Options{})
	r.clock = r.clock.Add(5 * time.Hour)
	r.put(ofVersion(2, 10)...)
	r.clock = r.clock.Add(-5 * time.Hour)
	of := ofVersion(2, 1)[0].Key
	r.Seen(of.Machine, of.GPUArch, of.NCCLVersion, of.Shape)
	known := r.Load(of.Machine, of.GPUArch, of.NCCLVersion, of.Shape)
	for _, l := range known {
		if l.SeenNs != state.Ns(r.clock.UnixNano()) {
			t.Fatalf("seen at %d, now is %d", l.SeenNs, r.clock.UnixNano())
		}
	}
	if len(known) != 10 {
		t.Errorf("%d records", len(known))
	}
	r.clock = time.Unix(-5, 0) // no record has such an instant, and none is refused for it
	r.put(ofVersion(3, 10)...)
	if got := r.versions(); len(got) != 2 {
		t.Errorf("known are %v", got)
	}
}

// What is forgotten and learned again while it is on its way to the file is written again.
func TestResilientKeepsWhatIsLearnedAgainMeanwhile(t *testing.T) {
	r := newResilient(t, storePath(t), Options{})
	r.limit = 10
	r.put(ofVersion(1, 10)...)
	_, recs, changes := r.snapshot()
	for v := 2; v >= 1; v-- { // each takes the other's place
		r.clock = r.clock.Add(time.Hour)
		r.put(ofVersion(v, 10)...)
	}
	r.written(recs, changes)
	if st := r.Stats(); st.Dirty != 10 {
		t.Errorf("%d records are to be written, want 10", st.Dirty)
	}
}
