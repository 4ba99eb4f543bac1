package store

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner"

	"go.etcd.io/bbolt"
)

// Schema is the layout that this package writes.
const Schema = 3

var (
	metaBucket = []byte("dynamiccl")
	schemaKey  = []byte("schema")

	choicesBucketV1 = []byte("choices")
)

// migrations[n] turns schema n into n+1 inside one transaction, and gives how many records it moved and how many it had
// to leave where they were.
var migrations = map[int]func(tx *bbolt.Tx, now state.Ns) (moved, left int, err error){1: migrateV1, 2: migrateV2}

// readSchema gives the schema of the file. ErrCorrupt: it can be that of no version.
func (s *Store) readSchema() (found int, err error) {
	err = s.guard(func() error {
		return s.db.View(func(tx *bbolt.Tx) (err error) {
			found, err = schemaOf(tx)
			return err
		})
	})
	return found, err
}

// migrate brings the file up to our schema: all in one transaction, so that a crash leaves the old layout whole.
func (s *Store) migrate(found int) error {
	switch {
	case found == Schema:
		return nil
	case found > Schema:
		return fmt.Errorf("schema %d, we know up to %d: %w", found, Schema, ErrNewerSchema)
	case s.options.ReadOnly && found == 0:
		return fmt.Errorf("an empty file: %w", ErrMissing)
	case s.options.ReadOnly:
		return fmt.Errorf("schema %d, ours is %d: %w", found, Schema, ErrOlderSchema)
	}
	return s.guard(func() error {
		return s.db.Update(func(tx *bbolt.Tx) error {
			for n := max(found, 1); n < Schema && found != 0; n++ {
				moved, left, err := migrations[n](tx, s.now())
				if err != nil {
					return fmt.Errorf("migrating schema %d: %w", n, err)
				}
				s.stats.MigratedFrom, s.stats.Migrated = found, moved
				s.stats.MigratedSkipped += left
			}
			if _, err := tx.CreateBucketIfNotExists(learnedBucket); err != nil {
				return err
			}
			b, err := tx.CreateBucketIfNotExists(metaBucket)
			if err != nil {
				return err
			}
			return b.Put(schemaKey, []byte(strconv.Itoa(Schema)))
		})
	})
}

// schemaOf gives 0 for a file that nothing was ever stored in.
func schemaOf(tx *bbolt.Tx) (int, error) {
	b := tx.Bucket(metaBucket)
	if b == nil {
		if k, _ := tx.Cursor().First(); k != nil {
			return 0, fmt.Errorf("a bbolt file with bucket %q: %w", k, ErrNotStore)
		}
		return 0, nil
	}
	text := b.Get(schemaKey)
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 {
		return 0, corrupt("schema %q", text)
	}
	if n == Schema && tx.Bucket(learnedBucket) == nil {
		return 0, corrupt("bucket %q is gone", learnedBucket)
	}
	return n, nil
}

// valueV1 is a value of schema 1: plain JSON without a checksum, evidence without variance.
type valueV1 struct {
	Action    string                `json:"action"`
	CostNs    float64               `json:"cost_ns"`
	DefaultNs float64               `json:"default_ns"`
	Calls     uint64                `json:"calls"`
	Evidence  map[string]evidenceV1 `json:"evidence,omitempty"`
}

type evidenceV1 struct {
	N      int     `json:"n"`
	MeanNs float64 `json:"mean_ns"`
}

// migrateV1 moves bucket "choices" (keys MACHINE|ARCH|NCCLVERSION|RANKS|NODES|TRANSPORT|COLLECTIVE|LOG2BYTES, unescaped,
// so that a name with a bar was ambiguous) to bucket "learned". Records that cannot be read stay in "choices".
func migrateV1(tx *bbolt.Tx, _ state.Ns) (moved, left int, err error) {
	old := tx.Bucket(choicesBucketV1)
	learned, err := tx.CreateBucketIfNotExists(learnedBucket)
	if err != nil || old == nil {
		return 0, 0, err
	}
	var done [][]byte
	err = old.ForEach(func(k, v []byte) error {
		l, err := decodeV1(k, v)
		if err != nil {
			left++
			return nil
		}
		key, err := encodeKey(l.Key)
		if err != nil {
			return err
		}
		value, err := encodeValueAs("2", key, l)
		if err != nil {
			return err
		}
		done = append(done, append([]byte(nil), k...))
		return learned.Put(key, value)
	})
	if err != nil {
		return 0, 0, err
	}
	if left == 0 {
		return len(done), 0, tx.DeleteBucket(choicesBucketV1)
	}
	for _, k := range done {
		if err := old.Delete(k); err != nil {
			return 0, 0, err
		}
	}
	return len(done), left, nil
}

// migrateV2 gives every record the time at which it was last seen: nobody wrote it down, so that is now. Records that
// cannot be read stay as they are, and are passed over as before.
func migrateV2(tx *bbolt.Tx, now state.Ns) (moved, left int, err error) {
	learned, err := tx.CreateBucketIfNotExists(learnedBucket)
	if err != nil {
		return 0, 0, err
	}
	values := map[string][]byte{} // a bucket must not change while it is walked
	err = learned.ForEach(func(k, v []byte) error {
		l, err := decodeValueAs("2", k, v)
		if err != nil {
			left++
			return nil
		}
		l.SeenNs = now
		values[string(k)], err = encodeValue(k, l)
		return err
	})
	if err != nil {
		return 0, 0, err
	}
	for k, v := range values {
		if err := learned.Put([]byte(k), v); err != nil {
			return 0, 0, err
		}
	}
	return len(values), left, nil
}

func decodeV1(k, v []byte) (tuner.Learned, error) {
	f := strings.Split(string(k), "|")
	if len(f) != 8 {
		return tuner.Learned{}, corrupt("key %q of schema 1: %d fields", k, len(f))
	}
	var l tuner.Learned
	l.Key.Machine, l.Key.GPUArch, l.Key.Shape.Transport = f[0], f[1], f[5]
	numbers := [4]int{}
	for i, text := range []string{f[2], f[3], f[4], f[7]} {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return l, corrupt("key %q of schema 1: %q", k, text)
		}
		numbers[i] = n
	}
	l.Key.NCCLVersion, l.Key.Shape.Ranks, l.Key.Shape.Nodes = numbers[0], numbers[1], numbers[2]
	l.Key.Bucket.Log2Bytes = uint8(min(numbers[3], math.MaxUint8))
	var err error
	if l.Key.Bucket.Collective, err = actions.ParseCollective(f[6]); err != nil {
		return l, err
	}
	var value valueV1
	if err := json.Unmarshal(v, &value); err != nil {
		return l, corrupt("value of schema 1: %v", err)
	}
	if l.Action, err = actions.Parse(value.Action); err != nil {
		return l, err
	}
	l.CostNs, l.Default, l.Calls = value.CostNs, value.DefaultNs, value.Calls
	for name, e := range value.Evidence {
		a, err := actions.Parse(name)
		if err != nil {
			return l, err
		}
		if l.Evidence == nil {
			l.Evidence = make(map[actions.Action]tuner.Estimate, len(value.Evidence))
		}
		// Without a variance N measurements would look like N equal ones, that is, like certainty. One measurement
		// is the honest weight of a mean whose spread is not known.
		l.Evidence[a] = tuner.Estimate{N: min(e.N, 1), MeanNs: e.MeanNs}
	}
	return normalise(l)
}
