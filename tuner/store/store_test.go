package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/state"
	"dynamiccl/tuner"

	"go.etcd.io/bbolt"
)

// sealed gives a text the header that encodeValue would give it.
func sealed(key []byte, text string) []byte {
	return fmt.Appendf(nil, "%s %08x %s", valueVersion, checksum(key, []byte(text)), text)
}

// change writes into the file past this package.
func change(t testing.TB, path string, fn func(*bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(fn), db.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestPutLoadSurvivesReopening(t *testing.T) {
	path := filled(t, 240)
	s := mustOpen(t, path, Options{})
	newer := learned(7, 4000)
	if err := s.Put([]tuner.Learned{newer}); err != nil { // replaces the record under its key
		t.Fatal(err)
	}
	other := learned(7, 1000)
	other.Key.Shape.Ranks = 4
	old := learned(9, 3000)
	old.Key.NCCLVersion = 21903
	older := learned(9, 3000)
	older.Key.NCCLVersion = 2280 // a prefix of 22809 in digits
	if err := s.Put([]tuner.Learned{other, old, older}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = mustOpen(t, path, Options{ReadOnly: true})
	want := batchOf(240, 5000)
	want[7] = newer
	got, err := s.Load(h200Key.Machine, h200Key.GPUArch, 22809, shape8)
	if err != nil {
		t.Fatal(err)
	}
	sameAll(t, got, want)
	if got, err := s.Load(h200Key.Machine, h200Key.GPUArch, 23007, shape8); err != nil || got != nil {
		t.Fatalf("for a version never seen: %v, %v", got, err)
	}
	for version, others := range map[int][]int{23007: {2280, 21903, 22809}, 22809: {2280, 21903}} {
		if got, err := s.Versions(h200Key.Machine, h200Key.GPUArch, version, shape8); err != nil || !slices.Equal(got, others) {
			t.Errorf("other versions than %d: %v, %v", version, got, err)
		}
	}
	if got, err := s.Versions(h200Key.Machine, "sm_100", 22809, shape8); err != nil || got != nil {
		t.Errorf("versions of another GPU: %v, %v", got, err)
	}
	st, err := s.Stats()
	if err != nil || st.Records != 243 || st.Bytes == 0 || st.Bad != 0 {
		t.Errorf("stats %+v, %v", st, err)
	}
	stop := errors.New("enough")
	if err := s.All(func(tuner.Learned) error { return stop }); err != stop {
		t.Errorf("All: %v", err)
	}
}

// A corrupt record costs itself and nothing else.
func TestCorruptRecordIsPassedOver(t *testing.T) {
	path := filled(t, 5)
	change(t, path, func(tx *bbolt.Tx) error {
		b := tx.Bucket(learnedBucket)
		key, err := encodeKey(learned(2, 1).Key)
		if err != nil {
			return err
		}
		value := append([]byte(nil), b.Get(key)...)
		value[len(value)-3] ^= 4
		prefix := encodePrefix(h200Key.Machine, h200Key.GPUArch, 22809, shape8)
		return errors.Join(b.Put(key, value), b.Put([]byte(prefix+"AllToAll/03"), value), b.Put([]byte("x"), nil))
	})
	var heard []string
	s := mustOpen(t, path, Options{OnBad: func(key string, err error) {
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", key, err)
		}
		heard = append(heard, key)
	}})
	got, err := s.Load(h200Key.Machine, h200Key.GPUArch, 22809, shape8)
	if err != nil {
		t.Fatal(err)
	}
	sameAll(t, got, slices.Delete(batchOf(5, 5000), 2, 3))
	if len(heard) != 2 {
		t.Fatalf("heard of %q", heard)
	}
	if all := loadAll(t, s); len(all) != 4 {
		t.Fatalf("All gave %d records", len(all))
	}
	if st, err := s.Stats(); err != nil || st.Bad != 5 || st.LastBad == "" {
		t.Fatalf("stats %+v, %v", st, err)
	}
	if v, err := s.Versions(h200Key.Machine, h200Key.GPUArch, 1, shape8); err != nil || !slices.Equal(v, []int{22809}) {
		t.Fatalf("versions %v, %v", v, err)
	}
	if err := s.Put([]tuner.Learned{learned(2, 5000)}); err != nil { // the next measurement heals it
		t.Fatal(err)
	}
	if all := loadAll(t, s); len(all) != 5 {
		t.Fatalf("after writing it anew All gave %d records", len(all))
	}
}

func TestTwoOpeners(t *testing.T) {
	path := filled(t, 3)
	first := mustOpen(t, path, Options{})
	start := time.Now()
	for _, o := range []Options{{}, {ReadOnly: true}, {ReplaceCorrupt: true}} {
		o.LockTimeout = 100 * time.Millisecond
		if _, err := Open(path, o); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), "remedy") {
			t.Fatalf("second opener %+v: %v", o, err)
		}
	}
	if waited := time.Since(start); waited < 300*time.Millisecond {
		t.Errorf("three openers waited %v, 100 ms each were asked for", waited)
	}
	if err := first.Put(batchOf(4, 5000)); err != nil {
		t.Fatalf("the first opener after the others: %v", err)
	}
	// An opener that waits gets the file when it is free.
	done := make(chan error)
	go func() {
		s, err := Open(path, Options{LockTimeout: 10 * time.Second})
		if err == nil {
			err = s.Close()
		}
		done <- err
	}()
	time.Sleep(50 * time.Millisecond)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	// Readers do not exclude each other.
	a, b := mustOpen(t, path, Options{ReadOnly: true}), mustOpen(t, path, Options{ReadOnly: true})
	if n, m := len(loadAll(t, a)), len(loadAll(t, b)); n != 4 || m != 4 {
		t.Fatalf("%d and %d records", n, m)
	}
}

// The file is moved aside while another opener waits for its lock: that one must not write into the old file.
func TestOpenerWaitsForAFileThatMoves(t *testing.T) {
	path := filled(t, 3)
	first := mustOpen(t, path, Options{})
	second := make(chan *Store)
	go func() {
		s, err := Open(path, Options{LockTimeout: 10 * time.Second})
		if err != nil {
			t.Error(err)
		}
		second <- s
	}()
	time.Sleep(50 * time.Millisecond)
	if err := errors.Join(os.Rename(path, path+".old"), first.Close()); err != nil {
		t.Fatal(err)
	}
	s := <-second
	if s == nil {
		t.FailNow()
	}
	defer s.Close()
	if n := len(loadAll(t, s)); n != 0 {
		t.Fatalf("opened the file that was moved: %d records", n)
	}
	if old := mustOpen(t, path+".old", Options{LockTimeout: 50 * time.Millisecond}); len(loadAll(t, old)) != 3 {
		t.Fatal("the moved file changed")
	}
}

func TestReadOnlyChangesNothing(t *testing.T) {
	path := filled(t, 3)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, path, Options{ReadOnly: true})
	if err := s.Put(batchOf(1, 5000)); err == nil {
		t.Error("written through a read-only store")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file changed, %v", err)
	}
	missing := storePath(t)
	if _, err := Open(missing, Options{ReadOnly: true}); !errors.Is(err, ErrMissing) {
		t.Errorf("no file: %v", err)
	}
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		t.Errorf("looking for a store made one: %v", err)
	}
}

func TestClosed(t *testing.T) {
	s := mustOpen(t, storePath(t), Options{})
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(batchOf(1, 5000)); !errors.Is(err, ErrClosed) {
		t.Errorf("Put: %v", err)
	}
	if _, err := s.Load("", "", 0, state.Shape{}); !errors.Is(err, ErrClosed) {
		t.Errorf("Load: %v", err)
	}
	if _, err := s.Stats(); !errors.Is(err, ErrClosed) {
		t.Errorf("Stats: %v", err)
	}
}

// The file grows up to MaxBytes and no further; what was stored stays.
func TestMaxBytes(t *testing.T) {
	path := storePath(t)
	s := mustOpen(t, path, Options{MaxBytes: 256 << 10})
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		batch := batchOf(240, 5000)
		for i := range batch {
			batch[i].Key.NCCLVersion = n
		}
		err = s.Put(batch)
	}
	if !errors.Is(err, ErrFull) {
		t.Fatalf("after %d batches: %v", n, err)
	}
	if got := len(loadAll(t, s)); got != (n-1)*240 {
		t.Fatalf("%d records, want those of the %d batches that were taken", got, n-1)
	}
}

// A callback that panics is the caller's bug: it must not pass for a corrupt file, which would be moved aside.
func TestCallersPanicIsNotCorruption(t *testing.T) {
	s := mustOpen(t, filled(t, 3), Options{})
	func() {
		defer func() {
			if recover() != "bug" {
				t.Error("the panic was swallowed")
			}
		}()
		s.All(func(tuner.Learned) error { panic("bug") })
	}()
	if n := len(loadAll(t, s)); n != 3 {
		t.Fatalf("%d records afterwards", n)
	}
}
