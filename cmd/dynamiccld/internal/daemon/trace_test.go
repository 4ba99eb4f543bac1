package daemon

import (
	"encoding/csv"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
			Puts: []tuner.WatchedPut{{Comm: 0xabc, Rank: 1, Peer: 3, Context: 2, Number: 77, Bucket: state.Bucket{Collective: actions.AllToAll, Log2Bytes: 9}, Alarm: true,
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
	if got := strings.Join(rows[4], ","); got != "6,abc,77,put,9,640,gin/gdaki/4,-,5000,11000,,,,,1,1,3,2,backend-fallback," {
		t.Errorf("row of a put %s", got)
	}
}

// A file with other columns, or of another kind, stays as it is, and the daemon says so before it serves; an empty one is begun.
func TestTraceOfAnotherShapeIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"older columns": strings.Join(traceColumns[:len(traceColumns)-1], ",") + "\n1,2\n",
		"newer columns": strings.Join(traceColumns, ",") + ",more\n",
		"no trace":      "\x00\x01 a store, say",
		"half a head":   strings.Join(traceColumns, ","),
	} {
		cfg := testConfig(t)
		cfg.Trace = filepath.Join(t.TempDir(), "trace.csv")
		if err := os.WriteFile(cfg.Trace, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(cfg, "test", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), cfg.Trace) || !strings.Contains(err.Error(), "--trace another file") {
			t.Errorf("%s: %v", name, err)
		}
		if left, err := os.ReadFile(cfg.Trace); err != nil || string(left) != text {
			t.Errorf("%s: the file holds %q, %v", name, left, err)
		}
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if tr, err := openTrace(pipe); err == nil || !strings.Contains(err.Error(), "it is a pipe") {
		t.Errorf("a pipe: %v, %v", tr, err)
	}
	path := filepath.Join(t.TempDir(), "empty.csv")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	traced(t, path, 1)
}

// A row that was cut off does not spoil the next.
func TestTraceGoesOnBehindWholeRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.csv")
	traced(t, path, 1)
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()-5); err != nil {
		t.Fatal(err)
	}
	traced(t, path, 1)
	traced(t, path, 2)
	for range 200 { // beyond what is looked at of the end
		traced(t, path, 0)
	}
}

// traced writes a row and wants so many in the file then; 0: any number.
func traced(t *testing.T, path string, want int) {
	t.Helper()
	tr, err := openTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	tr.write(&tuner.Watched{Comm: 1})
	if err := tr.close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil || want > 0 && len(rows) != 1+want {
		t.Errorf("%d rows, want a head and %d: %v\n%.3000s", len(rows), want, err, text)
	}
}

// Daemons that write one file, as those of a bench with several arms, each write whole rows below one head.
func TestTraceOfSeveralDaemons(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.csv")
	var all [2]*trace
	for i := range all {
		tr, err := openTrace(path)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = tr
	}
	const rows = 3000 // more than is kept for one write
	for range rows {
		for i, tr := range all {
			tr.write(&tuner.Watched{Comm: tuner.CommID(i)})
		}
	}
	for i, tr := range all {
		if err := tr.flush(); err != nil {
			t.Fatal(err)
		}
		if i == 0 { // one that comes meanwhile takes nothing away
			all[0].write(&tuner.Watched{Comm: 0})
			traced(t, path, 0)
		}
	}
	for _, tr := range all {
		if err := tr.close(); err != nil {
			t.Fatal(err)
		}
	}
	traced(t, path, 2*rows+3)
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
	if !strings.Contains(d.traceError, "no space left") {
		t.Errorf("a status would say %q", d.traceError)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "the trace ends here"); n != 1 {
		t.Errorf("said %d times:\n%s", n, log)
	}
}
