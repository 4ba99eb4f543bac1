package store

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strings"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

const (
	valueVersion = "3"
	valueHeader  = len(valueVersion) + 1 + 8 + 1 // version, space, checksum in hex, space
	maxValueSize = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

type valueJSON struct {
	Action    string         `json:"action"`
	CostNs    float64        `json:"cost_ns"`
	DefaultNs float64        `json:"default_ns"`
	Calls     uint64         `json:"calls"`
	SinceNs   state.Ns       `json:"since_ns,omitempty"` // from 1970, as all instants here; not in schema 2
	SeenNs    state.Ns       `json:"seen_ns,omitempty"`  // not in schema 2
	Diagnosis string         `json:"diagnosis,omitempty"`
	DiagNs    state.Ns       `json:"diagnosed_ns,omitempty"`
	Evidence  []evidenceJSON `json:"evidence,omitempty"`
	Refused   []string       `json:"refused,omitempty"`
}

type evidenceJSON struct {
	Action string  `json:"action"`
	N      int     `json:"n"`
	MeanNs float64 `json:"mean_ns"`
	VarLog float64 `json:"var_log"`
}

// normalise drops evidence that measured nothing and refuses what no measurement can give: one NaN among the costs
// would win or lose every comparison of every later run.
func normalise(l tuner.Learned) (tuner.Learned, error) {
	bad := func(format string, args ...any) (tuner.Learned, error) {
		return tuner.Learned{}, fmt.Errorf(format+": %w", append(args, ErrInvalid)...)
	}
	if err := checkKey(l.Key); err != nil {
		return tuner.Learned{}, err
	}
	if err := checkAction(l.Action); err != nil {
		return tuner.Learned{}, err
	}
	if !isCost(l.CostNs) {
		return bad("cost of %v ns", l.CostNs)
	}
	if l.Default != 0 && !isCost(l.Default) { // 0: the default was not measured
		return bad("default's cost of %v ns", l.Default)
	}
	if l.SinceNs < 0 || l.SeenNs < 0 || l.DiagnosisNs < 0 {
		return bad("chosen at %d ns, seen at %d ns, diagnosed at %d ns", l.SinceNs, l.SeenNs, l.DiagnosisNs)
	}
	if l.Diagnosis == agents.DiagnosisNone || l.Diagnosis >= agents.NumDiagnoses || l.DiagnosisNs == 0 {
		l.Diagnosis, l.DiagnosisNs = agents.DiagnosisNone, 0 // one without the other says nothing
	}
	var evidence map[actions.Action]tuner.Estimate
	for a, e := range l.Evidence {
		if e.N == 0 {
			continue
		}
		if err := checkAction(a); err != nil {
			return tuner.Learned{}, err
		}
		if e.N < 0 || !isCost(e.MeanNs) || !(e.VarLog >= 0) || math.IsInf(e.VarLog, 0) || e.N < 2 && e.VarLog != 0 {
			return bad("%v: %d measurements, mean %v ns, variance %v", a, e.N, e.MeanNs, e.VarLog)
		}
		if evidence == nil {
			evidence = make(map[actions.Action]tuner.Estimate, len(l.Evidence))
		}
		evidence[a] = e
	}
	l.Evidence = evidence
	err := checkRefused(&l)
	return l, err
}

// checkRefused sorts them. What is refused is not chosen, and the default never is.
func checkRefused(l *tuner.Learned) error {
	l.Refused = slices.Clone(l.Refused)
	slices.SortFunc(l.Refused, func(a, b actions.Action) int { return strings.Compare(a.String(), b.String()) })
	for i, a := range l.Refused {
		if err := checkAction(a); err != nil {
			return err
		}
		if a == actions.Default || a == l.Action || i > 0 && a == l.Refused[i-1] {
			return fmt.Errorf("%v is refused and is the choice, the default, or refused twice: %w", a, ErrInvalid)
		}
	}
	return nil
}

// isCost is false for NaN too.
func isCost(ns float64) bool { return ns > 0 && !math.IsInf(ns, 0) }

// checkAction makes sure that the name stands for this action and no other.
func checkAction(a actions.Action) error {
	if back, err := actions.Parse(a.String()); err != nil || back != a {
		return fmt.Errorf("action %+v has no name of its own: %w", a, ErrInvalid)
	}
	return nil
}

// encodeValue writes "3 CRC JSON". The checksum (CRC-32C) covers key and JSON, so that a value under another key fails
// as well.
func encodeValue(key []byte, l tuner.Learned) ([]byte, error) {
	return encodeValueAs(valueVersion, key, l)
}

func encodeValueAs(version string, key []byte, l tuner.Learned) ([]byte, error) {
	l, err := normalise(l)
	if err != nil {
		return nil, err
	}
	v := valueJSON{Action: l.Action.String(), CostNs: l.CostNs, DefaultNs: l.Default, Calls: l.Calls, SinceNs: l.SinceNs, SeenNs: l.SeenNs}
	if l.Diagnosis != agents.DiagnosisNone {
		v.Diagnosis, v.DiagNs = l.Diagnosis.String(), l.DiagnosisNs
	}
	for a, e := range l.Evidence {
		v.Evidence = append(v.Evidence, evidenceJSON{a.String(), e.N, e.MeanNs, e.VarLog})
	}
	slices.SortFunc(v.Evidence, func(a, b evidenceJSON) int { return strings.Compare(a.Action, b.Action) })
	for _, a := range l.Refused {
		v.Refused = append(v.Refused, a.String())
	}
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding record: %w: %w", ErrInvalid, err)
	}
	if len(text) > maxValueSize {
		return nil, fmt.Errorf("record of %d bytes, at most %d: %w", len(text), maxValueSize, ErrInvalid)
	}
	return fmt.Appendf(nil, "%s %08x %s", version, checksum(key, text), text), nil
}

func checksum(key, text []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, text)
}

// decodeValue reads what encodeValue wrote under this key.
func decodeValue(key, value []byte) (tuner.Learned, error) {
	return decodeValueAs(valueVersion, key, value)
}

func decodeValueAs(version string, key, value []byte) (tuner.Learned, error) {
	bad := func(format string, args ...any) (tuner.Learned, error) {
		return tuner.Learned{}, fmt.Errorf("record %q: "+format+": %w", append(append([]any{key}, args...), ErrCorrupt)...)
	}
	k, err := decodeKey(key)
	if err != nil {
		return tuner.Learned{}, err
	}
	if len(value) < valueHeader || len(value) > valueHeader+maxValueSize {
		return bad("%d bytes", len(value))
	}
	header, text := value[:valueHeader], value[valueHeader:]
	if want := fmt.Appendf(nil, "%s %08x ", version, checksum(key, text)); !bytes.Equal(header, want) {
		return bad("begins with %q instead of %q", header, want)
	}
	var v valueJSON
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return bad("%v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return bad("more than one value")
	}
	l := tuner.Learned{Key: k, CostNs: v.CostNs, Default: v.DefaultNs, Calls: v.Calls, SinceNs: v.SinceNs, SeenNs: v.SeenNs}
	if d, ok := agents.ParseDiagnosis(v.Diagnosis); ok { // a later version may know others
		l.Diagnosis, l.DiagnosisNs = d, v.DiagNs
	}
	if l.Action, err = actions.Parse(v.Action); err != nil {
		return bad("%v", err)
	}
	for _, e := range v.Evidence {
		a, err := actions.Parse(e.Action)
		if err != nil {
			return bad("%v", err)
		}
		if _, twice := l.Evidence[a]; twice || e.N == 0 {
			return bad("evidence of %v", a)
		}
		if l.Evidence == nil {
			l.Evidence = make(map[actions.Action]tuner.Estimate, len(v.Evidence))
		}
		l.Evidence[a] = tuner.Estimate{N: e.N, MeanNs: e.MeanNs, VarLog: e.VarLog}
	}
	for _, name := range v.Refused {
		a, err := actions.Parse(name)
		if err != nil {
			return bad("%v", err)
		}
		l.Refused = append(l.Refused, a)
	}
	if l, err = normalise(l); err != nil {
		return bad("%v", err)
	}
	return l, nil
}
