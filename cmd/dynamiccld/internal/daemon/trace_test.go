package daemon

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// A trace has a head once and a row for every call, also over a restart of the daemon.
func TestTraceAppends(t *testing.T) {
	cfg := testConfig(t)
	cfg.Trace = filepath.Join(t.TempDir(), "trace.csv")
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 4}
	put := actions.Action{Path: actions.PathGIN, Backend: actions.BackendGDAKI, Channels: 4}
	for life := range 2 {
		d, _ := open(t, cfg)
		d.traceOut(&tuner.Output{Watched: []tuner.Watched{{Comm: 0xabc, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}, Alarms: life,
			Observation: state.Observation{AtNs: 5, Seq: 7, Action: ring, Ran: ring, Bytes: 65536, SignalNs: 9000, FirstRank: 2, Idle: true}, Sound: true}},
			Puts: []tuner.WatchedPut{{Comm: 0xabc, Rank: 1, Peer: 3, Context: 2, Bucket: state.Bucket{Collective: actions.AllToAll, Log2Bytes: 9}, Alarm: true,
				Observation: state.Observation{AtNs: 6, Action: put, Bytes: 640, CounterNs: 5000, SignalNs: 11000}, Diagnosis: agents.DiagnosisBackendFallback}}})
		d.flushTrace()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(cfg.Trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) != 5 || strings.Join(rows[0], ",") != strings.Join(traceColumns, ",") {
		t.Fatalf("%v, %v", rows, err)
	}
	if got := strings.Join(rows[3], ","); got != "5,abc,7,AllReduce,16,65536,Ring/LL/4,Ring/LL/4,0,9000,0,2,0,true,1,,,,,true" {
		t.Errorf("row %s", got)
	}
	if got := strings.Join(rows[4], ","); got != "6,abc,,put,9,640,gin/gdaki/4,-,5000,11000,,,,,1,1,3,2,backend-fallback," {
		t.Errorf("row of a put %s", got)
	}
}

// A full disk ends the trace, says so once, and nothing else.
func TestTraceOnAFullDisk(t *testing.T) {
	cfg := testConfig(t)
	cfg.Trace = "/dev/full"
	d, log := open(t, cfg)
	for range 3 {
		d.traceOut(&tuner.Output{Watched: []tuner.Watched{{Comm: 1}}})
		d.flushTrace()
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "the trace ends here"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
}
