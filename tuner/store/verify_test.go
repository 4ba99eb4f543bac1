package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
)

// boltCheck is bbolt's own opinion of a file, as an oracle.
func boltCheck(t testing.TB, path string) error {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	return db.View(func(tx *bbolt.Tx) error {
		var errs []error
		for err := range tx.Check() {
			// bbolt leaks pages when a bucket is changed and deleted in one transaction: lost space, no damage.
			if !strings.Contains(err.Error(), "unreachable unfreed") {
				errs = append(errs, err)
			}
		}
		return errors.Join(errs...)
	})
}

func verifyPath(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return verify(bytes.NewReader(data), int64(len(data)))
}

// Files of every shape that bbolt makes pass: nested and inline buckets, values over several pages, deep trees, long
// freelists, deletions, with and without a synced freelist.
func TestVerifyPassesWhatBoltWrites(t *testing.T) {
	r := newRand(t)
	for _, noSync := range []bool{false, true} {
		path := storePath(t)
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: noSync, PageSize: 4096, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		for round := range 12 {
			err := db.Update(func(tx *bbolt.Tx) error {
				for range 300 {
					b, err := tx.CreateBucketIfNotExists(fmt.Appendf(nil, "bucket %d", r.IntN(4)))
					if err != nil {
						return err
					}
					if r.IntN(3) == 0 {
						if b, err = b.CreateBucketIfNotExists(fmt.Appendf(nil, "inner %d", r.IntN(3))); err != nil {
							return err
						}
					}
					key := fmt.Appendf(nil, "key %d %s", r.IntN(2000), bytes.Repeat([]byte{'k'}, r.IntN(300)))
					if r.IntN(4) == 0 {
						err = b.Delete(key)
					} else {
						err = b.Put(key, make([]byte, r.IntN(20)*r.IntN(1000)))
					}
					if err != nil {
						return err
					}
				}
				if b := tx.Bucket([]byte("bucket 0")); b != nil && round%3 == 2 { // from the front: first keys of pages change
					c := b.Cursor()
					for k, v := c.First(); k != nil && r.IntN(100) > 0; k, v = c.Next() {
						if v == nil {
							continue
						}
						if err := c.Delete(); err != nil {
							return err
						}
					}
				}
				if round%4 == 3 {
					return tx.DeleteBucket(fmt.Appendf(nil, "bucket %d", r.IntN(4)))
				}
				return nil
			})
			if err != nil && !errors.Is(err, bolterrors.ErrBucketNotFound) {
				t.Fatal(err)
			}
			if err := verifyPath(path); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := boltCheck(t, path); err != nil {
			t.Fatalf("bbolt itself: %v", err)
		}
	}
}

// What verify refuses in a page, one by one: each is a number that bbolt would follow blindly.
func TestVerifyRefuses(t *testing.T) {
	const page = 4096
	path := storePath(t)
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: page})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // several transactions, so that the freelist is not empty
		err := db.Update(func(tx *bbolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("big"))
			for i := 0; i < 200 && err == nil; i++ {
				err = b.Put(fmt.Appendf(nil, "key %03d", i), make([]byte, 100))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v := verifier{r: bytes.NewReader(image), size: int64(len(image)), used: map[uint64]bool{}}
	if v.meta, err = v.chooseMeta(); err != nil {
		t.Fatal(err)
	}
	root := int(v.meta.root) * page                       // a leaf: the bucket "big"
	tree := int(image[root+pageHeader+leafElem+3]) * page // its value begins with the root page of the bucket
	free := int(v.meta.freelist) * page                   //
	leaf := int(image[tree+pageHeader+8]) * page          // first child of the branch
	if image[tree+8] != pageBranch || image[leaf+8] != pageLeaf || image[free+8] != pageFreelist || image[free+10] < 2 {
		t.Fatalf("the file is not built as this test expects: root %d, tree %d, leaf %d, freelist %d", root, tree, leaf, free)
	}
	if err := verify(bytes.NewReader(image), int64(len(image))); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		off  int
		data []byte
	}{
		{"page number", leaf, []byte{0x7f}},
		{"page type", leaf + 8, []byte{0x10}},
		{"two page types", leaf + 8, []byte{0x03}},
		{"element count", leaf + 10, []byte{0xff, 0xff}},
		{"a branch without children", tree + 10, []byte{0, 0}},
		{"overflow beyond the file", leaf + 12, []byte{0xff, 0xff}},
		{"overflow into another page", tree + 12, []byte{200}},
		{"key position", leaf + pageHeader + 4, []byte{0xff, 0xff, 0xff}},
		{"key inside the elements", leaf + pageHeader + 4, []byte{0, 0}},
		{"key size one more", leaf + pageHeader + 8, []byte{image[leaf+pageHeader+8] + 1}},
		{"value size one less", leaf + pageHeader + 12, []byte{image[leaf+pageHeader+12] - 1}},
		{"a branch's key", int(indexFrom(image, tree, "key 000")), []byte("key  ")},
		{"key size zero", leaf + pageHeader + 8, []byte{0}},
		{"key size", leaf + pageHeader + 8, []byte{0xff, 0xff, 0xff, 0xff}},
		{"value size", leaf + pageHeader + 12, []byte{0xff, 0xff, 0xff, 0xff}},
		{"unknown value flags", leaf + pageHeader, []byte{2}},
		{"a value that is no bucket", leaf + pageHeader, []byte{1}},
		{"child beyond the file", tree + pageHeader + 8, []byte{0xff, 0xff, 0xff}},
		{"child is a meta page", tree + pageHeader + 8, []byte{1}},
		{"a cycle", tree + pageHeader + 8, image[tree : tree+1]},
		{"two parents", tree + pageHeader + 8, image[tree+pageHeader+branchElem+8 : tree+pageHeader+branchElem+9]},
		{"key order", int(indexFrom(image, leaf, "key 001")), []byte("key 000")},
		{"key above the next page's", int(indexFrom(image, leaf, "key 001")), []byte("zzz")},
		{"freelist: a page in use", free + pageHeader, image[leaf : leaf+8]},
		{"freelist: twice", free + pageHeader, image[free+pageHeader+8 : free+pageHeader+16]},
		{"freelist: a meta page", free + pageHeader, []byte{0, 0}},
		{"freelist: count", free + 10, []byte{0xfe, 0xff}},
		{"freelist: long count", free + 10, append([]byte{0xff, 0xff, 0, 0, 0, 0}, bytes.Repeat([]byte{0xff}, 8)...)},
		{"freelist: type", free + 8, []byte{pageLeaf}},
	} {
		bad := bytes.Clone(image)
		copy(bad[c.off:], c.data)
		if bytes.Equal(bad, image) {
			t.Errorf("%s: nothing was changed", c.name)
			continue
		}
		if err := verify(bytes.NewReader(bad), int64(len(bad))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", c.name, err)
		}
	}
}

func indexFrom(image []byte, from int, text string) int {
	return from + bytes.Index(image[from:], []byte(text))
}

func FuzzVerify(f *testing.F) {
	path := filled(f, 60)
	image, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(uint32(0), []byte{1}, uint32(len(image)))
	f.Add(uint32(4096*2+8), []byte{0x10, 0, 0xff, 0xff}, uint32(len(image)))
	f.Add(uint32(4096*5+16), bytes.Repeat([]byte{0x80}, 32), uint32(9000))
	f.Fuzz(func(t *testing.T, off uint32, patch []byte, size uint32) {
		bad := bytes.Clone(image)
		copy(bad[int(off)%len(bad):], patch)
		bad = bad[:min(int(size), len(bad))]
		if err := verify(bytes.NewReader(bad), int64(len(bad))); err != nil {
			return
		}
		// What passes must be safe for bbolt: a fault or panic here fails the target.
		path := storePath(t)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
		if err != nil {
			t.Fatalf("passed, but bbolt says %v", err)
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			if err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
				if b == nil {
					return nil
				}
				return b.ForEach(func(_, _ []byte) error { return nil })
			}); err != nil {
				return err
			}
			b, err := tx.CreateBucketIfNotExists([]byte("fuzz"))
			if err != nil {
				return err
			}
			return b.Put([]byte("key"), make([]byte, 10000))
		})
		if err := errors.Join(err, db.Close(), verifyPath(path)); err != nil {
			t.Fatal(err)
		}
	})
}
