package paired

import (
	"reflect"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// What came before the phase is left out, each kind of a size is one line, and what came first stands first, of alarms and findings
// that were asked for one after the other.
func TestSaid(t *testing.T) {
	alarms := []control.Alarm{
		{Collective: "AllReduce", MinBytes: 1024, AgoS: 10.5, Up: true}, // of the phase before
		{Collective: "AllReduce", MinBytes: 1024, AgoS: 8, Up: true},
		{Collective: "AllGather", MinBytes: 4096, AgoS: 7.5, Up: true},
		{Collective: "AllReduce", MinBytes: 1024, AgoS: 7, Up: true},
		{Collective: "AllReduce", MinBytes: 1024, AgoS: 1},
	}
	findings := []control.Finding{
		{Collective: "AllReduce", MinBytes: 1024, AgoS: 30, Diagnosis: "recovered"},
		{Collective: "AllReduce", MinBytes: 1024, AgoS: 7.75, Diagnosis: "cpu-contention", Text: "signal 2.00x"},
		{Collective: "AllReduce", MinBytes: 1024, AgoS: 5, Diagnosis: "cpu-contention", Text: "signal 2.50x"},
	}
	got := said(alarms, 10.25, findings, 10)
	want := []Said{
		{"alarm-up", "AllReduce", 1024, 2, 2.25, ""},
		{"cpu-contention", "AllReduce", 1024, 2, 2.25, "signal 2.00x"},
		{"alarm-up", "AllGather", 4096, 1, 2.75, ""},
		{"alarm-down", "AllReduce", 1024, 1, 9.25, ""},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	h := Heard{Alarms: 4, Findings: map[string]uint64{"cpu-contention": 2}, Said: got}
	if s := h.String(); s != "its detector: 4 alarms; 3 alarm-up, first after 2.2 s (AllReduce 1 KiB); 2 cpu-contention, first after 2.2 s (AllReduce 1 KiB); "+
		"1 alarm-down, first after 9.2 s (AllReduce 1 KiB)" {
		t.Error(s)
	}
}
