package store

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynamiccl/tuner"

	"go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// What Open says about every kind of damage, and what becomes of the file with ReplaceCorrupt.
func TestBadFiles(t *testing.T) {
	page := int64(os.Getpagesize())
	overwrite := func(off int64, data []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteAt(data, off)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	truncate := func(size int64) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
		}
	}
	whole := func(data string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	zeros := make([]byte, 2*page)
	for _, c := range []struct {
		name    string
		spoil   func(t *testing.T, path string)
		kind    error // nil: opens
		records int   // when it opens
	}{
		{"zero length", truncate(0), nil, 0},
		{"creation cut short in the first page", func(t *testing.T, path string) { truncate(0)(t, path); bornUpTo(t, path, 40) }, nil, 0},
		{"creation cut short later", func(t *testing.T, path string) { truncate(0)(t, path); bornUpTo(t, path, 3*page) }, nil, 0},
		{"one byte", truncate(1), nil, 0}, // no different from a creation cut short
		{"truncated in the first page", truncate(page / 2), ErrCorrupt, 0},
		{"truncated to the meta pages", truncate(2 * page), ErrCorrupt, 0},
		{"truncated at the end", truncate(8 * page), ErrCorrupt, 0},
		{"first meta page lost", overwrite(0, zeros[:page]), nil, 100},
		{"second meta page lost", overwrite(page, zeros[:page]), nil, 100},
		{"both meta pages lost", overwrite(0, zeros), ErrNotStore, 0}, // nothing is left to know it by
		{"both meta pages damaged", func(t *testing.T, path string) {
			overwrite(40, []byte{0xff})(t, path)
			overwrite(page+40, []byte{0xff})(t, path)
		}, ErrCorrupt, 0},
		{"all zero", whole(string(make([]byte, 1<<16))), ErrCorrupt, 0},
		{"a text", whole("machine,nccl\n"), ErrNotStore, 0},
		{"a short text", whole("x"), ErrNotStore, 0},
		{"a long text", whole(strings.Repeat("DynamICCL\n", 10000)), ErrNotStore, 0},
		{"garbage after the meta pages", overwrite(2*page, bytes.Repeat([]byte{0xa5}, int(page)*6)), ErrCorrupt, 0},
		{"another program's bbolt file", func(t *testing.T, path string) {
			os.Remove(path)
			change(t, path, func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("members")); return err })
		}, ErrNotStore, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filled(t, 100)
			c.spoil(t, path)
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			s, err := Open(path, Options{})
			if !errors.Is(err, c.kind) || err != nil && !strings.Contains(err.Error(), "remedy") {
				t.Fatalf("Open: %v, want %v", err, c.kind)
			}
			if err == nil {
				if n := len(loadAll(t, s)); n != c.records {
					// Losing a meta page may cost the last transaction, never the file.
					if !(c.records > 0 && n == 0) {
						t.Fatalf("%d records, want %d", n, c.records)
					}
				}
				if err := errors.Join(s.Put(batchOf(3, 1)), s.Close()); err != nil {
					t.Fatal(err)
				}
				return
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Fatalf("Open changed a file that it refused, %v", err)
			}

			s, err = Open(path, Options{ReplaceCorrupt: true})
			aside, _ := filepath.Glob(path + ".corrupt-*")
			if c.kind != ErrCorrupt {
				if !errors.Is(err, c.kind) || len(aside) != 0 {
					t.Fatalf("somebody else's file: %v, moved to %q", err, aside)
				}
				return
			}
			if err != nil || len(aside) != 1 || aside[0] != path+".corrupt-1" {
				t.Fatalf("%v, moved to %q", err, aside)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(before, kept) {
				t.Fatalf("the file moved aside is not the old one, %v", err)
			}
			st, err := s.Stats()
			if err != nil || st.Records != 0 || st.MovedTo != aside[0] {
				t.Fatalf("new store: %+v, %v", st, err)
			}
			if err := errors.Join(s.Put(batchOf(3, 1)), s.Close()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// bornUpTo leaves what a creation that dies after size bytes leaves.
func bornUpTo(t *testing.T, path string, size int64) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Close(), os.Truncate(path, size)); err != nil {
		t.Fatal(err)
	}
}

func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, fifo, "/dev/null"} {
		for _, o := range []Options{{ReplaceCorrupt: true}, {ReadOnly: true}} {
			if _, err := Open(path, o); !errors.Is(err, ErrNotStore) {
				t.Errorf("%s: %v", path, err)
			}
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s was moved: %v", path, err)
		}
	}
	if _, err := Open(filepath.Join(fifo, "state.db"), Options{}); err == nil {
		t.Error("opened a file inside a pipe")
	}
}

// The file behind a link is moved aside, and the link leads to the new one.
func TestCorruptFileBehindALink(t *testing.T) {
	path := filled(t, 3)
	link := filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.Symlink(path, link), os.Truncate(path, 9000)); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, link, Options{ReplaceCorrupt: true})
	if st, err := s.Stats(); err != nil || st.MovedTo != path+".corrupt-1" {
		t.Fatalf("%+v, %v", st, err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Fatalf("the link is gone: %v", err)
	}
}

func TestCorruptCopiesAreBounded(t *testing.T) {
	path := filled(t, 3)
	for n := 1; n <= maxCorruptCopies+1; n++ {
		if err := os.WriteFile(path, make([]byte, 1<<14), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path, Options{ReplaceCorrupt: true})
		if n > maxCorruptCopies {
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "delete them") {
				t.Fatalf("copy %d: %v", n, err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
}

func TestPermissions(t *testing.T) {
	path := filled(t, 3)
	dir := filepath.Dir(path)
	if err := errors.Join(os.Chmod(path, 0o444), os.Chmod(dir, 0o555), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o755) })
	asNobody(t, func() {
		if _, err := Open(path, Options{}); !errors.Is(err, ErrNoAccess) {
			t.Errorf("read-only file: %v", err)
		}
		for _, name := range []string{"new.db", "new/new.db"} {
			if _, err := Open(filepath.Join(dir, name), Options{}); !errors.Is(err, ErrNoAccess) {
				t.Errorf("%s in a read-only directory: %v", name, err)
			}
		}
		s, err := Open(path, Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		sameAll(t, loadAll(t, s), batchOf(3, 5000))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, nowhere := range []string{filepath.Join(path, "new.db"), filepath.Join(path, "new", "new.db"), "/proc/new/new.db"} { // not even for root
		if _, err := Open(nowhere, Options{}); !errors.Is(err, ErrNoAccess) {
			t.Errorf("%s: %v", nowhere, err)
		}
	}
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		if _, err := Open(path, Options{ReadOnly: true}); !errors.Is(err, ErrNoAccess) {
			t.Errorf("unreadable file: %v", err)
		}
	})
}

// A link that leads nowhere, as to a disk that is not mounted, is no store that is yet to come, and no failing disk.
func TestLinkToNowhere(t *testing.T) {
	dir := t.TempDir()
	path, loop := filepath.Join(dir, "store.db"), filepath.Join(dir, "loop.db")
	if err := errors.Join(os.Symlink(filepath.Join(dir, "disk", "store.db"), path), os.Symlink("loop.db", loop)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); !errors.Is(err, ErrNoAccess) || errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "a link to "+filepath.Join(dir, "disk", "store.db")) {
		t.Errorf("%v", err)
	}
	if _, err := Open(path, Options{ReadOnly: true}); !errors.Is(err, ErrMissing) {
		t.Errorf("looked at: %v", err)
	}
	if _, err := Open(loop, Options{}); !errors.Is(err, ErrNotStore) || errors.Is(err, ErrDisk) {
		t.Errorf("%v", err)
	}
}

func TestNewFileIsPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "state.db")
	mustOpen(t, path, Options{})
	for p, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", p, info.Mode(), err)
		}
	}
}

// A file that is cut off while it is open makes the mapped memory fault; that must end in an error.
func TestTruncatedWhileOpen(t *testing.T) {
	path := filled(t, 240)
	s := mustOpen(t, path, Options{})
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.All(func(tuner.Learned) error { return nil }); !errors.Is(err, ErrCorrupt) {
		t.Errorf("All: %v", err)
	}
	if err := s.Put(batchOf(1, 5000)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Put: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if again, err := Open(path, Options{}); err != nil { // the lock was released
		t.Errorf("opening it again: %v", err)
	} else {
		again.Close()
	}
}

// Bytes changed at random, anywhere: Open refuses with a typed error or the store works; never a panic or a fault, and
// never a record that was not stored.
func TestRandomDamage(t *testing.T) {
	r := newRand(t)
	image, err := os.ReadFile(filled(t, 60))
	if err != nil {
		t.Fatal(err)
	}
	path := storePath(t)
	opened, refused := 0, 0
	for range 250 {
		damaged := bytes.Clone(image)
		for range 1 + r.IntN(4) {
			// Small numbers near the start of a page hit the structure, the rest mostly values.
			off := r.IntN(len(damaged)/os.Getpagesize())*os.Getpagesize() + r.IntN(64)
			if r.IntN(3) == 0 {
				off = r.IntN(len(damaged))
			}
			damaged[off] = byte(r.Uint32())
		}
		if r.IntN(10) == 0 {
			damaged = damaged[:r.IntN(len(damaged))]
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(path, Options{})
		if err != nil {
			refused++
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNotStore) && !errors.Is(err, ErrNewerSchema) && !errors.Is(err, ErrOlderSchema) {
				t.Fatalf("refused with %v", err)
			}
			continue
		}
		opened++
		for _, l := range loadAll(t, s) {
			if i := int(l.Key.Bucket.Collective)*48 + int(l.Key.Bucket.Log2Bytes); !same(l, learned(i, 5000)) {
				t.Fatalf("a record that was never stored: %+v", l)
			}
		}
		if err := s.Put(batchOf(240, 6000)); err != nil {
			t.Fatalf("Put into a file that passed: %v", err)
		}
		if s.broken != nil {
			t.Fatalf("bbolt panicked on a file that passed: %v", s.broken)
		}
		if n := len(loadAll(t, s)); n != 240 {
			t.Fatalf("%d records after writing all 240", n)
		}
		if err := errors.Join(s.Close(), verifyPath(path)); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d opened, %d refused", opened, refused)
	if opened == 0 || refused == 0 {
		t.Fatal("the damage was always or never fatal: the test shows nothing")
	}
}

// A name that no file can have is no failure of the disk.
func TestNameThatIsTooLong(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, path := range []string{filepath.Join(t.TempDir(), long), filepath.Join(t.TempDir(), long, "store.db")} {
		for _, readOnly := range []bool{true, false} {
			if _, err := Open(path, Options{ReadOnly: readOnly}); !errors.Is(err, ErrName) || !strings.Contains(err.Error(), "name another file with --store") {
				t.Errorf("%.40s, to be read alone: %v: %.60s...%.100s", path, readOnly, err, err.Error()[len(err.Error())-100:])
			}
		}
	}
}
