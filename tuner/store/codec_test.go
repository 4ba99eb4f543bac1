package store

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/tuner"

	"pgregory.net/rapid"
)

func TestCodecRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := anyLearned().Draw(t, "record")
		key, err := encodeKey(l.Key)
		if err != nil {
			t.Fatal(err)
		}
		value, err := encodeValue(key, l)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeValue(key, value); err != nil || !same(back, l) {
			t.Fatalf("%+v\nread back as %+v, %v", l, back, err)
		}
	})
}

// Two keys of different groups must not lie under one prefix, whatever their names contain.
func TestPrefixesDoNotMix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyKey().Draw(t, "a"), anyKey().Draw(t, "b")
		key, err := encodeKey(a)
		if err != nil {
			t.Fatal(err)
		}
		under := strings.HasPrefix(string(key), encodePrefix(b.Machine, b.GPUArch, b.NCCLVersion, b.Shape))
		b.Bucket = a.Bucket
		if under != (a == b) {
			t.Fatalf("%q under the prefix of %+v: %v", key, b, under)
		}
	})
}

func TestSenselessRecordsAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*tuner.Learned){
		"cost NaN":             func(l *tuner.Learned) { l.CostNs = math.NaN() },
		"cost negative":        func(l *tuner.Learned) { l.CostNs = -1 },
		"cost zero":            func(l *tuner.Learned) { l.CostNs = 0 },
		"cost infinite":        func(l *tuner.Learned) { l.CostNs = math.Inf(1) },
		"default NaN":          func(l *tuner.Learned) { l.Default = math.NaN() },
		"default negative":     func(l *tuner.Learned) { l.Default = -1 },
		"default infinite":     func(l *tuner.Learned) { l.Default = math.Inf(1) },
		"mean NaN":             func(l *tuner.Learned) { l.Evidence[treeLL] = tuner.Estimate{N: 1, MeanNs: math.NaN()} },
		"mean zero":            func(l *tuner.Learned) { l.Evidence[treeLL] = tuner.Estimate{N: 1} },
		"variance NaN":         func(l *tuner.Learned) { l.Evidence[treeLL] = tuner.Estimate{N: 2, MeanNs: 1, VarLog: math.NaN()} },
		"variance negative":    func(l *tuner.Learned) { l.Evidence[treeLL] = tuner.Estimate{N: 2, MeanNs: 1, VarLog: -1} },
		"variance infinite":    func(l *tuner.Learned) { l.Evidence[treeLL] = tuner.Estimate{N: 2, MeanNs: 1, VarLog: math.Inf(1)} },
		"variance of one":      func(l *tuner.Learned) { l.Evidence[treeLL] = tuner.Estimate{N: 1, MeanNs: 1, VarLog: 1} },
		"count negative":       func(l *tuner.Learned) { l.Evidence[treeLL] = tuner.Estimate{N: -1, MeanNs: 1} },
		"action of evidence":   func(l *tuner.Learned) { l.Evidence[actions.Action{Path: 9}] = tuner.Estimate{N: 1, MeanNs: 1} },
		"default refused":      func(l *tuner.Learned) { l.Refused = []actions.Action{treeLL, actions.Default} },
		"choice refused":       func(l *tuner.Learned) { l.Refused = []actions.Action{l.Action} },
		"refused twice":        func(l *tuner.Learned) { l.Refused = []actions.Action{treeLL, treeLL} },
		"action refused":       func(l *tuner.Learned) { l.Refused = []actions.Action{{Path: 9}} },
		"path":                 func(l *tuner.Learned) { l.Action.Path = 9 },
		"algorithm":            func(l *tuner.Learned) { l.Action.Algorithm = actions.NumAlgorithms },
		"protocol":             func(l *tuner.Learned) { l.Action.Protocol = actions.NumProtocols },
		"default with a part":  func(l *tuner.Learned) { l.Action = actions.Action{Channels: 2} },
		"collective":           func(l *tuner.Learned) { l.Key.Bucket.Collective = actions.NumCollectives },
		"size bucket":          func(l *tuner.Learned) { l.Key.Bucket.Log2Bytes = 48 },
		"no ranks":             func(l *tuner.Learned) { l.Key.Shape.Ranks = 0 },
		"no nodes":             func(l *tuner.Learned) { l.Key.Shape.Nodes = -1 },
		"chosen before 1970":   func(l *tuner.Learned) { l.SinceNs = -1 },
		"seen before 1970":     func(l *tuner.Learned) { l.SeenNs = -1 },
		"told before 1970":     func(l *tuner.Learned) { l.Diagnosis, l.DiagnosisNs = agents.DiagnosisCongestion, -1 },
		"NCCL version":         func(l *tuner.Learned) { l.Key.NCCLVersion = -1 },
		"a name without bound": func(l *tuner.Learned) { l.Key.Machine = strings.Repeat("x", maxKeySize) },
	} {
		t.Run(name, func(t *testing.T) {
			l := learned(3, 5000)
			spoil(&l)
			s := mustOpen(t, storePath(t), Options{})
			good := learned(4, 5000)
			if err := s.Put([]tuner.Learned{l, good}); !errors.Is(err, ErrInvalid) {
				t.Fatalf("Put: %v, want ErrInvalid", err)
			}
			sameAll(t, loadAll(t, s), []tuner.Learned{good}) // the good one beside it is stored
			if st, err := s.Stats(); err != nil || st.Rejected != 1 || st.Records != 1 {
				t.Fatalf("stats %+v, %v", st, err)
			}
		})
	}
}

func TestEvidenceOfNothingIsDropped(t *testing.T) {
	l := learned(3, 5000)
	l.Evidence[treeLL] = tuner.Estimate{MeanNs: math.NaN()} // an estimate that nobody measured
	s := mustOpen(t, storePath(t), Options{})
	if err := s.Put([]tuner.Learned{l}); err != nil {
		t.Fatal(err)
	}
	sameAll(t, loadAll(t, s), []tuner.Learned{learned(3, 5000)})
}

// One flipped bit anywhere in a value, or a value under another key, is noticed.
func TestChecksum(t *testing.T) {
	l := learned(3, 5000)
	key, err := encodeKey(l.Key)
	if err != nil {
		t.Fatal(err)
	}
	value, err := encodeValue(key, l)
	if err != nil {
		t.Fatal(err)
	}
	for i := range value {
		for bit := range 8 {
			bad := append([]byte(nil), value...)
			bad[i] ^= 1 << bit
			if got, err := decodeValue(key, bad); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d, bit %d: %+v, %v", i, bit, got, err)
			}
		}
	}
	other, err := encodeKey(learned(4, 5000).Key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeValue(other, value); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("under another key: %+v, %v", got, err)
	}
}

// A value with a right checksum can still be wrong: written by other code under our version.
func TestDecodeChecksContent(t *testing.T) {
	key, err := encodeKey(learned(3, 5000).Key)
	if err != nil {
		t.Fatal(err)
	}
	const ok = `{"action":"Ring/LL/2","cost_ns":5,"default_ns":0,"calls":1}`
	if _, err := decodeValue(key, sealed(key, ok)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "{", "null", "[]", ok + ok, ok + "x",
		`{"action":"Ring/LL/2","cost_ns":5,"default_ns":0,"calls":1,"more":1}`,
		`{"action":"Ringo/LL","cost_ns":5,"default_ns":0,"calls":1}`,
		`{"action":"default","cost_ns":-5,"default_ns":0,"calls":1}`,
		`{"action":"default","cost_ns":1e999,"default_ns":0,"calls":1}`,
		`{"action":"default","cost_ns":5,"default_ns":0,"calls":-1}`,
		`{"action":"default","cost_ns":5,"default_ns":0,"calls":1,"evidence":[{"action":"default","n":0,"mean_ns":1,"var_log":0}]}`,
		`{"action":"default","cost_ns":5,"default_ns":0,"calls":1,"evidence":[{"action":"x","n":1,"mean_ns":1,"var_log":0}]}`,
		`{"action":"default","cost_ns":5,"default_ns":0,"calls":1,"evidence":[{"action":"default","n":1,"mean_ns":1,"var_log":0},{"action":"default","n":1,"mean_ns":1,"var_log":0}]}`,
	} {
		if got, err := decodeValue(key, sealed(key, text)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

func FuzzDecodeValue(f *testing.F) {
	key, err := encodeKey(learned(3, 5000).Key)
	if err != nil {
		f.Fatal(err)
	}
	value, err := encodeValue(key, learned(3, 5000))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(key, value, false)
	f.Add(key, value[valueHeader:], true)
	f.Add([]byte(""), []byte("3 00000000 {}"), false)
	f.Fuzz(func(t *testing.T, key, value []byte, seal bool) {
		if seal { // past the checksum, which a fuzzer would never guess
			value = sealed(key, string(value))
		}
		l, err := decodeValue(key, value)
		if err != nil {
			return
		}
		k2, err := encodeKey(l.Key)
		if err != nil || string(k2) != string(key) {
			t.Fatalf("key %q again %q, %v", key, k2, err)
		}
		v2, err := encodeValue(k2, l)
		if err != nil {
			t.Fatalf("read but refused: %v", err)
		}
		if back, err := decodeValue(k2, v2); err != nil || !same(back, l) {
			t.Fatalf("%+v\nread back as %+v, %v", l, back, err)
		}
	})
}

func FuzzDecodeKey(f *testing.F) {
	f.Add([]byte("8xH200%2FNVSwitch/sm_90/8r/1n/nvlink/22809/AllReduce/03"))
	f.Add([]byte("//1r/1n//0/Broadcast/00"))
	f.Add([]byte("%zz//+1r/01n//0/broadcast/3"))
	f.Fuzz(func(t *testing.T, key []byte) {
		k, err := decodeKey(key)
		if err != nil {
			return
		}
		if again, err := encodeKey(k); err != nil || string(again) != string(key) {
			t.Fatalf("%q -> %+v -> %q, %v", key, k, again, err)
		}
	})
}

// Records of schema 3 from before diagnoses were stored have none, and neither has one with a name that only a later version knows.
func TestRecordsWithoutADiagnosis(t *testing.T) {
	l := learned(1, 5000)
	key, err := encodeKey(l.Key)
	if err != nil {
		t.Fatal(err)
	}
	value := func(more string) []byte {
		text := `{"action":"Ring/LL","cost_ns":5000,"default_ns":7500,"calls":100,"since_ns":1760000000000000000,"seen_ns":1761000000000000000` + more + `}`
		return fmt.Appendf(nil, "3 %08x %s", checksum(key, []byte(text)), text)
	}
	for _, more := range []string{"", `,"diagnosis":"sunspots","diagnosed_ns":5`, `,"diagnosis":"congestion"`, `,"diagnosed_ns":5`} {
		if got, err := decodeValue(key, value(more)); err != nil || got.Diagnosis != agents.DiagnosisNone || got.DiagnosisNs != 0 || got.Calls != 100 {
			t.Errorf("with %q: %+v, %v", more, got, err)
		}
	}
	if got, err := decodeValue(key, value(`,"diagnosis":"congestion","diagnosed_ns":5`)); err != nil || got.Diagnosis != agents.DiagnosisCongestion || got.DiagnosisNs != 5 {
		t.Errorf("%+v, %v", got, err)
	}
}
