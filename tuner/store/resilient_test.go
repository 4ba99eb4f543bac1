package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/tuner"

	"go.etcd.io/bbolt"
)

type resilientTest struct {
	*Resilient
	t     *testing.T
	path  string
	log   *bytes.Buffer
	clock time.Time
}

func newResilient(t *testing.T, path string, o Options) *resilientTest {
	t.Helper()
	log, buffer := logBuffer()
	if o.LockTimeout == 0 {
		o.LockTimeout = 10 * time.Millisecond
	}
	r := &resilientTest{nil, t, path, buffer, time.Now()}
	o.Now = func() time.Time { return r.clock }
	r.Resilient = NewResilient(path, o, log)
	t.Cleanup(func() { r.Close() })
	return r
}

func (r *resilientTest) put(batch ...tuner.Learned) {
	r.t.Helper()
	if err := r.Put(batch); err != nil {
		r.t.Fatal(err)
	}
}

// flush flushes after every pause is over.
func (r *resilientTest) flush(want error) {
	r.t.Helper()
	r.clock = r.clock.Add(longestRetry)
	if err := r.Flush(); !errors.Is(err, want) {
		r.t.Fatalf("Flush: %v, want %v", err, want)
	}
}

func (r *resilientTest) load() []tuner.Learned {
	return r.Load(h200Key.Machine, h200Key.GPUArch, h200Key.NCCLVersion, h200Key.Shape)
}

func (r *resilientTest) said(text string, times int) {
	r.t.Helper()
	if n := strings.Count(r.log.String(), text); n != times {
		r.t.Fatalf("%q was logged %d times, want %d:\n%s", text, n, times, r.log)
	}
}

// onDisk closes r and reads the file.
func (r *resilientTest) onDisk() []tuner.Learned {
	r.t.Helper()
	if err := r.Close(); err != nil {
		r.t.Fatal(err)
	}
	s := mustOpen(r.t, r.path, Options{ReadOnly: true})
	got, err := s.Load(h200Key.Machine, h200Key.GPUArch, h200Key.NCCLVersion, h200Key.Shape)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func TestResilientWarmStart(t *testing.T) {
	path := storePath(t)
	r := newResilient(t, path, Options{})
	r.put(batchOf(10, 5000)...)
	sameAll(t, r.load(), batchOf(10, 5000)) // before any Flush
	for i := range 1000 {                   // coalesced
		r.put(learned(3, float64(1000+i)))
	}
	if st := r.Stats(); st.Dirty != 10 || st.Records != 10 || st.Failing != nil {
		t.Fatalf("%+v", st)
	}
	r.flush(nil)
	if st := r.Stats(); st.Dirty != 0 {
		t.Fatalf("%+v", st)
	}
	want := batchOf(10, 5000)
	want[3] = learned(3, 1999)
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again := newResilient(t, path, Options{})
	sameAll(t, again.load(), want)
	if got := again.Versions(h200Key.Machine, h200Key.GPUArch, 23007, shape8); !slices.Equal(got, []int{22809}) {
		t.Fatalf("versions %v", got)
	}
	if got := again.Versions(h200Key.Machine, h200Key.GPUArch, 22809, shape8); got != nil {
		t.Fatalf("other versions %v", got)
	}
	if r.log.Len() != 0 || again.log.Len() != 0 {
		t.Fatalf("logged though nothing happened: %s%s", r.log, again.log)
	}
}

// Records belong to the store once put: the caller reuses its maps.
func TestResilientCopies(t *testing.T) {
	r := newResilient(t, "", Options{})
	l := learned(1, 5000)
	r.put(l)
	l.Evidence[ring24] = tuner.Estimate{N: 1, MeanNs: 1}
	got := r.load()
	got[0].Evidence[treeLL] = tuner.Estimate{N: 1, MeanNs: 1}
	sameAll(t, r.load(), []tuner.Learned{learned(1, 5000)})
	if err := errors.Join(r.Flush(), r.Close()); err != nil { // no path: nothing to write, nothing to say
		t.Fatal(err)
	}
}

func TestResilientWaitsOutALock(t *testing.T) {
	path := filled(t, 5)
	holder := mustOpen(t, path, Options{})
	r := newResilient(t, path, Options{})
	r.put(learned(7, 4000))
	for range 5 {
		r.flush(ErrLocked)
	}
	r.said("kept in memory only", 1)
	if err := r.Put([]tuner.Learned{learned(2, 3000)}); err != nil {
		t.Fatal(err)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Flush(); !errors.Is(err, ErrLocked) { // its pause is not over
		t.Fatalf("tried again at once: %v", err)
	}
	r.flush(nil)
	r.said("works again", 1)
	want := append(batchOf(5, 5000), learned(7, 4000))
	want[2] = learned(2, 3000) // what is newer here wins over the file
	sameAll(t, r.load(), want)
	sameAll(t, r.onDisk(), want)
}

func TestResilientPausesGrow(t *testing.T) {
	path := filled(t, 1)
	mustOpen(t, path, Options{})
	r := newResilient(t, path, Options{})
	last := time.Duration(0)
	for range 10 {
		r.flush(ErrLocked)
		if pause := r.retryAt.Sub(r.clock); pause < last || pause > longestRetry {
			t.Fatalf("a pause of %v after one of %v", pause, last)
		} else {
			last = pause
		}
	}
	if last != longestRetry {
		t.Fatalf("the longest pause is %v", last)
	}
}

func TestResilientMovesACorruptFileAside(t *testing.T) {
	path := filled(t, 5)
	if err := os.Truncate(path, 9000); err != nil {
		t.Fatal(err)
	}
	r := newResilient(t, path, Options{})
	r.said("moved aside", 1)
	r.said(path+".corrupt-1", 1)
	if moved := r.Stats().MovedTo; moved != path+".corrupt-1" {
		t.Errorf("moved to %q", moved)
	}
	r.put(learned(7, 4000))
	r.flush(nil)
	sameAll(t, r.onDisk(), []tuner.Learned{learned(7, 4000)})
}

// Whatever happens to the file while we run, the next Flush brings back everything that we know.
func TestResilientLosesItsFile(t *testing.T) {
	for name, lose := range map[string]func(path string) error{
		"deleted":   os.Remove,
		"emptied":   func(path string) error { return os.Truncate(path, 0) },
		"cut off":   func(path string) error { return os.Truncate(path, 9000) },
		"replaced":  func(path string) error { os.Remove(path); return os.WriteFile(path, make([]byte, 1<<14), 0o600) },
		"directory": func(path string) error { return os.RemoveAll(filepath.Dir(path)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			r := newResilient(t, filepath.Join(dir, "state.db"), Options{})
			r.put(batchOf(5, 5000)...)
			r.flush(nil)
			if err := lose(r.path); err != nil {
				t.Fatal(err)
			}
			r.put(learned(7, 4000))
			r.flush(nil)
			sameAll(t, r.onDisk(), append(batchOf(5, 5000), learned(7, 4000)))
		})
	}
}

func TestResilientLeavesOthersFilesAlone(t *testing.T) {
	newer := filled(t, 3)
	change(t, newer, func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(schemaKey, []byte("9")) })
	text := storePath(t)
	if err := os.WriteFile(text, []byte("not yours"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]error{newer: ErrNewerSchema, text: ErrNotStore, t.TempDir(): ErrNotStore} {
		before, _ := os.ReadFile(path)
		r := newResilient(t, path, Options{})
		r.put(learned(7, 4000))
		r.flush(kind)
		r.flush(kind)
		r.said("kept in memory only", 1)
		sameAll(t, r.load(), []tuner.Learned{learned(7, 4000)})
		if err := r.Close(); !errors.Is(err, kind) || !strings.Contains(err.Error(), "1 learned choices are lost") {
			t.Errorf("%v: Close: %v", kind, err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%v: the file changed", kind)
		}
		if aside, _ := filepath.Glob(path + ".corrupt-*"); aside != nil {
			t.Errorf("%v: moved to %q", kind, aside)
		}
	}
}

// A file that may be read but not written still gives its warm start.
func TestResilientReadOnlyFile(t *testing.T) {
	path := filled(t, 5)
	dir := filepath.Dir(path)
	if err := errors.Join(os.Chmod(path, 0o444), os.Chmod(dir, 0o555), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o755) })
	asNobody(t, func() {
		r := newResilient(t, path, Options{})
		sameAll(t, r.load(), batchOf(5, 5000))
		r.put(learned(7, 4000))
		r.flush(ErrNoAccess)
		r.flush(ErrNoAccess)
		r.said("kept in memory only", 1)
		r.said("it is used as it is", 1)
		if n := len(r.load()); n != 6 {
			t.Fatalf("%d records in memory", n)
		}
		if err := r.Close(); !errors.Is(err, ErrNoAccess) {
			t.Fatalf("Close: %v", err)
		}
	})
}

func TestResilientFullDisk(t *testing.T) {
	path := storePath(t)
	r := newResilient(t, path, Options{MaxBytes: 256 << 10})
	for n := range 20 {
		batch := batchOf(240, 5000)
		for i := range batch {
			batch[i].Key.NCCLVersion += n
		}
		r.put(batch...)
	}
	r.flush(ErrFull)
	r.flush(ErrFull)
	r.said("kept in memory only", 1)
	if st := r.Stats(); st.Records != 20*240 || st.Dirty == 0 || !errors.Is(st.Failing, ErrFull) {
		t.Fatalf("%+v", st)
	}
	sameAll(t, r.load(), batchOf(240, 5000))
	r.options.MaxBytes = 64 << 20 // space again
	r.flush(nil)
	r.said("works again", 1)
	sameAll(t, r.onDisk(), batchOf(240, 5000))
	if st, err := mustOpen(t, path, Options{ReadOnly: true}).Stats(); err != nil || st.Records != 20*240 {
		t.Fatalf("on disk: %+v, %v", st, err)
	}
}

func TestResilientSaysWhatItCannotRead(t *testing.T) {
	path := filled(t, 5)
	change(t, path, func(tx *bbolt.Tx) error {
		b := tx.Bucket(learnedBucket)
		return errors.Join(b.Put([]byte("a"), []byte("?")), b.Put([]byte("b"), []byte("?")))
	})
	r := newResilient(t, path, Options{})
	r.said("cannot be read and is passed over", 1)
	r.said("records of the store cannot be read", 1)
	sameAll(t, r.load(), batchOf(5, 5000))
}

func TestResilientRefusesAndIsBounded(t *testing.T) {
	r := newResilient(t, "", Options{})
	r.limit = 3
	bad := learned(0, -5)
	badAction := learned(0, 5)
	badAction.Action = actions.Action{Path: 9}
	if err := r.Put([]tuner.Learned{bad, learned(1, 5000), badAction}); !errors.Is(err, ErrInvalid) {
		t.Fatalf("Put: %v", err)
	}
	r.put(batchOf(10, 4000)...)
	if st := r.Stats(); st.Records != 3 || st.Refused != 2 || st.Lost != 7 || st.Dirty != 0 {
		t.Fatalf("%+v", st)
	}
	r.put(learned(1, 3000)) // what is known can always be renewed
	if got := r.load(); len(got) != 3 || got[1].CostNs != 3000 {
		t.Fatalf("%v", got)
	}
}

// Tuning never waits for the disk: everything but Flush and Close answers while the disk hangs.
func TestResilientDoesNotWaitForTheDisk(t *testing.T) {
	r := newResilient(t, storePath(t), Options{})
	r.io.Lock() // a Flush that hangs holds exactly this
	defer r.io.Unlock()
	done := make(chan error)
	go func() {
		err := r.Put(batchOf(240, 5000))
		if n := len(r.load()); n != 240 {
			err = errors.Join(err, fmt.Errorf("%d records", n))
		}
		r.Versions(h200Key.Machine, h200Key.GPUArch, 1, shape8)
		r.Stats()
		done <- errors.Join(err, r.All(func(tuner.Learned) error { return nil }))
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("waited for the disk")
	}
}

// Puts that come while a Flush writes are not lost: the file ends with the newest of every key.
func TestResilientConcurrent(t *testing.T) {
	r := newResilient(t, storePath(t), Options{})
	var writers sync.WaitGroup
	stop := make(chan struct{})
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for {
			if err := r.Flush(); err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	for w := range 4 {
		writers.Go(func() {
			for n := 1; n <= 200; n++ {
				for i := range 5 {
					if err := r.Put([]tuner.Learned{learned(w*5+i, float64(n))}); err != nil {
						t.Error(err)
					}
				}
				r.load()
			}
		})
	}
	writers.Wait()
	close(stop)
	flusher.Wait()
	sameAll(t, r.onDisk(), batchOf(20, 200))
}
