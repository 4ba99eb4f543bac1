package control

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

func TestParseCommID(t *testing.T) {
	for in, want := range map[string]string{"deadbeef": "00000000deadbeef", "0xDEADBEEF": "00000000deadbeef", "00000000deadbeef": "00000000deadbeef",
		"ffffffffffffffff": "ffffffffffffffff", "0": "0000000000000000", "": "", "0x": "", "xyz": "", "11112222333344445": "", "-1": "", "+1": ""} {
		got, err := ParseCommID(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

func TestNCCLVersion(t *testing.T) {
	for code, want := range map[int]string{0: "", -1: "", 22809: "2.28.9", 23007: "2.30.7", 23203: "2.32.3", 2708: "2.7.8", 20905: "2.9.5"} {
		if got := FormatNCCLVersion(code); got != want {
			t.Errorf("%d: %q, want %q", code, got, want)
		}
	}
	for text, want := range map[string]int{"": 0, "2.30.7": 23007, "2.9.5": 20905} {
		if got, err := ParseNCCLVersion(text); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, bad := range []string{"2", "2.30", "2.30.7.1", "2.30.x", "2.-3.1", "2.300.1", "2.7.8", "1.0.0", "latest"} {
		if code, err := ParseNCCLVersion(bad); err == nil {
			t.Errorf("%q: %d", bad, code)
		}
	}
}

// TestSenselessViews: JSON has no NaN, and a store may hold nothing but a name.
func TestSenselessViews(t *testing.T) {
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0} {
		v := tuner.BucketView{Bucket: state.Bucket{Collective: 200, Log2Bytes: 47}, Choice: actions.Action{Path: 9, Algorithm: 77}, SinceNs: math.MinInt64, DiagnosisNs: math.MaxInt64,
			SpeedUp: x, SpeedUpLow: x, SpeedUpHigh: x, CusumCounter: x, CusumSignal: x, Diagnosis: 250,
			Choices: []tuner.ActionView{{Estimate: tuner.Estimate{N: -1, MeanNs: x, VarLog: x}}}}
		if _, err := json.Marshal(FromView(v, 1, time.Unix(1, 0))); err != nil {
			t.Errorf("%v: %v", x, err)
		}
		l := tuner.Learned{CostNs: x, Default: x, Calls: 1, Evidence: map[actions.Action]tuner.Estimate{{}: {N: 5, MeanNs: x, VarLog: x}}}
		if _, err := json.Marshal(FromLearned(l, time.Now())); err != nil {
			t.Errorf("learned %v: %v", x, err)
		}
		cost, change := tuner.ReplayCost{MedianNs: x, MeanNs: x}, agents.Change{BeforeNs: x, AfterNs: x}
		r := tuner.ReplayView{Bucket: v.Bucket, Choice: v.Choice, FirstNs: math.MinInt64, LastNs: math.MaxInt64, Signal: cost, Counter: cost, Changes: 1,
			Changed: tuner.ReplayChange{AtNs: math.MaxInt64, Signal: change, Counter: change}}
		if _, err := json.Marshal(FromReplays(r, 1, time.Unix(1, 0))); err != nil {
			t.Errorf("replays %v: %v", x, err)
		}
	}
}

func TestFromLearned(t *testing.T) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL}
	l := tuner.Learned{Key: tuner.Key{Machine: "m", NCCLVersion: 23007, Shape: state.Shape{Ranks: 8, Nodes: 1}, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}},
		Action: ring, CostNs: 50, Default: 100, Calls: 9,
		Evidence: map[actions.Action]tuner.Estimate{ring: {N: 100, MeanNs: 50, VarLog: 0.01}, {}: {N: 100, MeanNs: 100, VarLog: 0.01}}}
	b := FromLearned(l, time.Now())
	// ln 2 -+ 1.96 * sqrt(0.0001 + 0.0001)
	if b.SpeedUp != 2 || math.Abs(b.SpeedUpLow-2*math.Exp(-0.0277186)) > 1e-4 || math.Abs(b.SpeedUpHigh-2*math.Exp(0.0277186)) > 1e-4 {
		t.Errorf("%v (%v to %v)", b.SpeedUp, b.SpeedUpLow, b.SpeedUpHigh)
	}
	if b.Comm != "" || b.NCCLVersion != "2.30.7" || b.Tried[0].Action != "default" || b.MinBytes != 1024 || b.MaxBytes != 2047 || b.Diagnosis != agents.DiagnosisNone.String() {
		t.Errorf("%+v", b)
	}
	// Instants of a store whose host's clock was ahead are not known, rather than in the future.
	now := time.Unix(1_760_000_000, 0)
	l.SinceNs, l.Diagnosis, l.DiagnosisNs = state.Ns(now.Add(-time.Hour).UnixNano()), agents.DiagnosisCongestion, state.Ns(now.Add(-time.Minute).UnixNano())
	if b := FromLearned(l, now); b.Since == nil || now.Sub(*b.Since) != time.Hour || b.DiagnosedAt == nil || now.Sub(*b.DiagnosedAt) != time.Minute || b.Diagnosis != "congestion" || !b.DiagnosedBefore {
		t.Errorf("since %v, %s at %v", b.Since, b.Diagnosis, b.DiagnosedAt)
	}
	if b := FromLearned(l, now.Add(-2*time.Hour)); b.Since != nil || b.DiagnosedAt != nil || b.Diagnosis != "none" || b.DiagnosedBefore {
		t.Errorf("of the future: since %v, %s at %v", b.Since, b.Diagnosis, b.DiagnosedAt)
	}
	l.Evidence = nil
	if b := FromLearned(l, time.Now()); b.SpeedUp != 2 || b.SpeedUpLow != 2 {
		t.Errorf("without evidence: %+v", b)
	}
	l.Calls = 0
	if b := FromLearned(l, time.Now()); b.SpeedUp != 1 || b.Note == "" || len(b.Tried) != 0 {
		t.Errorf("imported: %+v", b)
	}
}
