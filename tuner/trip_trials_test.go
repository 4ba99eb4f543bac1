package tuner

import (
	"slices"
	"testing"

	"dynamiccl/agents"
	"dynamiccl/internal/testrecord"
	"dynamiccl/state"
)

// ginPart is a part of a run: what was done to links with which call over GIN, and with which one puts show it. Ranks tell of calls
// twice a second, and the line between two looks says which one was made at a switch.
type ginPart struct {
	fault       agents.Diagnosis
	from, shown uint32
}

// ginParts are those of agents/testdata/realnoise/gin-trials.csv.gz.
var ginParts = []ginPart{
	{agents.DiagnosisNone, 0, 0},
	{agents.DiagnosisBackendFallback, 127773, 127849}, {agents.DiagnosisNone, 156671, 157048},
	{agents.DiagnosisCongestion, 185561, 186006}, {agents.DiagnosisNone, 191483, 191483},
	{agents.DiagnosisBackendFallback, 204348, 204348}, {agents.DiagnosisNone, 230167, 230400},
	{agents.DiagnosisCongestion, 259214, 259455}, {agents.DiagnosisNone, 265521, 265521},
	{agents.DiagnosisBackendFallback, 283643, 283766}, {agents.DiagnosisNone, 310127, 310127},
	{agents.DiagnosisCongestion, 336365, 336742}, {agents.DiagnosisNone, 341300, 341910},
}

// ginTold is what was said of a way's put.
type ginTold struct {
	way       linkKey
	number    uint32
	alarm     bool
	diagnosis agents.Diagnosis
}

// playTrials tells a core what ranks told in that run, look by look.
func playTrials(t *testing.T) (all []ginTold) {
	t.Helper()
	rows := testrecord.Rows(t, realNoise+"gin-trials.csv.gz")
	if len(rows) < 49_999 {
		t.Fatalf("%d rows", len(rows))
	}
	core := coreOf(t, agents.NameUCB, Config{Trace: true}, CommJoined{Shape: state.Shape{Ranks: 2, Nodes: 2}})
	nowNs, number := state.Ns(1e9), uint32(0)
	tick := func() {
		for _, p := range core.Step(nowNs, Tick{}).Puts {
			all = append(all, ginTold{linkKey{p.Rank, p.Peer, p.Context, p.Observation.Action.Backend}, p.Number, p.Alarm, p.Diagnosis})
		}
	}
	for _, r := range rows {
		n, action := recordedPut(t, r, 5)
		if n[0] > 20_000 { // a look later
			tick()
		}
		nowNs, number = nowNs+state.Ns(1000*n[0]), number+uint32(n[1])
		rank := int32(n[2])
		for i, counter := range n[6:8] {
			from := rank
			if i == 1 {
				from = 1 - rank
			}
			core.Step(nowNs, &Trip{Comm: 1, Number: number, Rank: from, Peer: 1 - from, Context: uint8(n[3]), Action: action, Bytes: uint64(n[4]),
				CounterNs: state.Ns(counter), SignalNs: state.Ns(n[8])})
		}
	}
	tick()
	return all
}

// Faults on live kernels, of eight seconds each and as long apart, as they were measured with puts that are timed closely where they are
// wanted: what is said at the end of each, of each way, how many puts were made until an alarm, and what is said where there is nothing.
// Causes were looked for in the first six parts behind the quiet one; the other six say whether what was found is so in general.
func TestDiagnosesTrialsOnLiveKernels(t *testing.T) {
	type tally struct{ ways, right, over, early, shown int }
	var halves [2]tally
	var delays []int
	quiet, quietAlarms, behind, behindAlarms := 0, 0, 0, 0
	said := map[linkKey]agents.Diagnosis{}
	puts, shown, noticed := map[linkKey]int{}, map[linkKey]int{}, map[linkKey]bool{}
	part := 0
	ends := func() {
		p, h := ginParts[part], &halves[part/7]
		for way, d := range said {
			switch {
			case part == 0:
			case p.fault == agents.DiagnosisNone:
				h.over += b2i(d == agents.DiagnosisRecovered)
			default:
				h.ways++
				h.right += b2i(d == p.fault)
				if !noticed[way] {
					delays = append(delays, puts[way])
				}
			}
		}
		clear(puts)
		clear(shown)
		clear(noticed)
		part++
	}
	for _, p := range playTrials(t) {
		for part+1 < len(ginParts) && p.number >= ginParts[part+1].from {
			ends()
		}
		said[p.way] = p.diagnosis
		now := &ginParts[part]
		puts[p.way]++
		shown[p.way] += b2i(p.number >= now.shown)
		switch {
		case part == 0:
			quiet++
			quietAlarms += b2i(p.alarm)
		case now.fault == agents.DiagnosisNone:
			if part+1 == len(ginParts) || p.number-now.shown > (ginParts[part+1].from-now.shown)/2 {
				behind++
				behindAlarms += b2i(p.alarm)
			}
		case p.alarm && !noticed[p.way]:
			noticed[p.way] = true
			delays = append(delays, puts[p.way])
			halves[part/7].early += b2i(puts[p.way] <= 32)
			halves[part/7].shown += b2i(shown[p.way] <= 32)
		}
	}
	ends()
	slices.Sort(delays)
	t.Logf("noticed after %d puts in the median, %d at most; %d quiet puts, %d alarms; %d puts late behind faults, %d alarms",
		delays[len(delays)/2], delays[len(delays)-1], quiet, quietAlarms, behind, behindAlarms)
	for i, h := range halves {
		t.Logf("half %d: of %d ways under faults %d right at the end, %d noticed within 32 puts, %d within 32 that show it; %d of %d ends told",
			i+1, h.ways, h.right, h.early, h.shown, h.over, h.ways)
		if h.ways != 24 || 100*h.right < 95*h.ways || 100*h.over < 95*h.ways || 100*h.shown < 95*h.ways {
			t.Errorf("half %d: %+v", i+1, h)
		}
	}
	if early := halves[0].early + halves[1].early; 100*early < 95*48 {
		t.Errorf("%d of 48 noticed within 32 puts", early)
	}
	if quiet < 38_000 || quietAlarms > 1 || behindAlarms > 4 {
		t.Errorf("%d alarms of %d quiet puts, %d of %d behind faults", quietAlarms, quiet, behindAlarms, behind)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
