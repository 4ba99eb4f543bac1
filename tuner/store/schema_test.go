package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/tuner"

	"go.etcd.io/bbolt"
)

// writeV1 makes a store as schema 1 had it.
func writeV1(t *testing.T, entries map[string]string) string {
	t.Helper()
	path := storePath(t)
	change(t, path, func(tx *bbolt.Tx) error {
		meta, err := tx.CreateBucket(metaBucket)
		if err != nil {
			return err
		}
		choices, err := tx.CreateBucket(choicesBucketV1)
		if err != nil {
			return err
		}
		for k, v := range entries {
			if err := choices.Put([]byte(k), []byte(v)); err != nil {
				return err
			}
		}
		return meta.Put(schemaKey, []byte("1"))
	})
	return path
}

const (
	v1Key   = "8xH200/NVSwitch|sm_90|22809|8|1|nvlink|AllReduce|20"
	v1Value = `{"action":"Ring/LL128/24","cost_ns":20400,"default_ns":24000,"calls":7,` +
		`"evidence":{"default":{"n":40,"mean_ns":24000},"Ring/LL128/24":{"n":9,"mean_ns":20400},"Tree/LL":{"n":0,"mean_ns":0}}}`
)

func TestMigrationFromV1(t *testing.T) {
	path := writeV1(t, map[string]string{v1Key: v1Value})
	if _, err := Open(path, Options{ReadOnly: true}); !errors.Is(err, ErrOlderSchema) {
		t.Fatalf("read-only: %v", err)
	}
	s := mustOpen(t, path, Options{Now: func() time.Time { return time.Unix(7, 0) }})
	st, err := s.Stats()
	if err != nil || st.MigratedFrom != 1 || st.Migrated != 1 || st.MigratedSkipped != 0 || st.Records != 1 {
		t.Fatalf("stats %+v, %v", st, err)
	}
	want := learned(4*48+20, 20400)
	want.Default, want.Calls, want.SinceNs, want.SeenNs = 24000, 7, 0, 7e9
	// The spread was never written down: a mean counts as one measurement.
	want.Evidence = map[actions.Action]tuner.Estimate{actions.Default: {N: 1, MeanNs: 24000}, ring24: {N: 1, MeanNs: 20400}}
	sameAll(t, loadAll(t, s), []tuner.Learned{want})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	change(t, path, func(tx *bbolt.Tx) error {
		if tx.Bucket(choicesBucketV1) != nil || string(tx.Bucket(metaBucket).Get(schemaKey)) != "3" {
			t.Error("the old bucket is still there, or the schema is not 3")
		}
		return nil
	})
	s = mustOpen(t, path, Options{ReadOnly: true}) // migrated once
	if st, err := s.Stats(); err != nil || st.MigratedFrom != 0 {
		t.Fatalf("second time: %+v, %v", st, err)
	}
}

// What cannot be read stays where it is: a later version may be able to.
func TestMigrationLeavesWhatItCannotRead(t *testing.T) {
	bad := map[string]string{
		"bar|in|name|sm_90|22809|8|1|nvlink|AllReduce|20":      v1Value,
		"m|sm_90|22809|8|1|nvlink|SendRecv|20":                 v1Value,
		"m|sm_90|22809|8|1|nvlink|AllReduce|48":                v1Value,
		"m|sm_90|22809|0|1|nvlink|AllReduce|20":                v1Value,
		"m|sm_90|x|8|1|nvlink|AllReduce|20":                    v1Value,
		"m|sm_90|22809|8|1|nvlink|AllReduce|99999999999999999": v1Value,
		"m|sm_90|22809|8|1|nvlink|AllReduce|1":                 "{",
		"m|sm_90|22809|8|1|nvlink|AllReduce|2":                 strings.Replace(v1Value, "20400", "-20400", 1),
		"m|sm_90|22809|8|1|nvlink|AllReduce|3":                 strings.Replace(v1Value, "Tree/LL", "Trie/LL", 1),
		"m|sm_90|22809|8|1|nvlink|AllReduce|4":                 strings.Replace(v1Value, `"n":9`, `"n":-9`, 1),
	}
	all := map[string]string{v1Key: v1Value}
	for k, v := range bad {
		all[k] = v
	}
	path := writeV1(t, all)
	s := mustOpen(t, path, Options{})
	if st, err := s.Stats(); err != nil || st.Migrated != 1 || st.MigratedSkipped != len(bad) || st.Records != 1 {
		t.Fatalf("stats %+v, %v", st, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	left := map[string]string{}
	change(t, path, func(tx *bbolt.Tx) error {
		return tx.Bucket(choicesBucketV1).ForEach(func(k, v []byte) error { left[string(k)] = string(v); return nil })
	})
	if fmt.Sprint(left) != fmt.Sprint(bad) {
		t.Fatalf("left: %v", left)
	}
}

// What schema 2 did not write down: since when is not known, and when it was seen last is when it is found.
func TestMigrationFromV2(t *testing.T) {
	path := filled(t, 2)
	damaged := []byte("2 00000000 {}")
	change(t, path, func(tx *bbolt.Tx) error {
		b := tx.Bucket(learnedBucket)
		for i := range 3 {
			l := learned(i, 5000)
			key, err := encodeKey(l.Key)
			if err != nil {
				return err
			}
			l.SinceNs, l.SeenNs = 0, 0
			value, err := encodeValueAs("2", key, l)
			if i == 2 {
				value = damaged
			}
			if err := errors.Join(err, b.Put(key, value)); err != nil {
				return err
			}
		}
		return tx.Bucket(metaBucket).Put(schemaKey, []byte("2"))
	})
	if _, err := Open(path, Options{ReadOnly: true}); !errors.Is(err, ErrOlderSchema) {
		t.Fatalf("read-only: %v", err)
	}
	s := mustOpen(t, path, Options{Now: func() time.Time { return time.Unix(7, 0) }})
	st, err := s.Stats()
	if err != nil || st.MigratedFrom != 2 || st.Migrated != 2 || st.MigratedSkipped != 1 || st.Records != 3 {
		t.Fatalf("stats %+v, %v", st, err)
	}
	want := batchOf(2, 5000)
	for i := range want {
		want[i].SinceNs, want[i].SeenNs = 0, 7e9
	}
	sameAll(t, loadAll(t, s), want)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	change(t, path, func(tx *bbolt.Tx) error {
		if key, err := encodeKey(learned(2, 5000).Key); err != nil || !bytes.Equal(tx.Bucket(learnedBucket).Get(key), damaged) {
			t.Errorf("what could not be read was touched, %v", err)
		}
		return nil
	})
}

func TestSchemasRefused(t *testing.T) {
	setSchema := func(text string) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Put(schemaKey, []byte(text)) }
	}
	for _, c := range []struct {
		name string
		fn   func(*bbolt.Tx) error
		kind error
	}{
		{"newer", setSchema("4"), ErrNewerSchema},
		{"no number", setSchema("two"), ErrCorrupt},
		{"zero", setSchema("0"), ErrCorrupt},
		{"empty", setSchema(""), ErrCorrupt},
		{"negative", setSchema("-1"), ErrCorrupt},
		{"more than a number holds", setSchema("99999999999999999999"), ErrCorrupt},
		{"schema gone", func(tx *bbolt.Tx) error { return tx.Bucket(metaBucket).Delete(schemaKey) }, ErrCorrupt},
		{"bucket gone", func(tx *bbolt.Tx) error { return tx.DeleteBucket(learnedBucket) }, ErrCorrupt},
	} {
		path := filled(t, 3)
		change(t, path, c.fn)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path, Options{}); !errors.Is(err, c.kind) {
			t.Errorf("%s: %v, want %v", c.name, err, c.kind)
		}
		if c.kind == ErrNewerSchema {
			_, err := Open(path, Options{ReplaceCorrupt: true})
			if !errors.Is(err, ErrNewerSchema) || !strings.Contains(err.Error(), "schema 4, we know up to 3") {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
			t.Errorf("%s: the file changed, %v", c.name, err)
		}
		if c.kind == ErrCorrupt {
			movedAside(t, c.name, path, before)
		}
	}
}

// movedAside wants the file at path, which Open refuses, kept beside a new store.
func movedAside(t *testing.T, name, path string, before []byte) {
	t.Helper()
	if _, err := Open(path, Options{ReadOnly: true, ReplaceCorrupt: true}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%s, looked at: %v", name, err)
	}
	s, err := Open(path, Options{ReplaceCorrupt: true})
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	st, err := s.Stats()
	if err := errors.Join(err, s.Put(batchOf(3, 1)), s.Close()); err != nil || st.Records != 0 || st.MovedTo != path+".corrupt-1" {
		t.Errorf("%s: new store %+v, %v", name, st, err)
	}
	if kept, err := os.ReadFile(path + ".corrupt-1"); err != nil || !bytes.Equal(kept, before) {
		t.Errorf("%s: the file moved aside is not the old one, %v", name, err)
	}
}
