package daemon

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/csvfile"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// traceColumns head the file of --trace. Times of a call are those of all its ranks together (docs/design.md, decision 6).
var traceColumns = []string{"at_ns", "comm", "seq", "collective", "log2_bytes", "bytes", "action", "ran", "counter_ns", "signal_ns",
	"skew_ns", "first_rank", "plan", "sound", "alarms", "rank", "peer", "context", "diagnosis", "idle"}

// tracedPut is the collective of lines about puts over GIN: of one, from a rank to a peer over a context; seq is the call's number among
// those over GIN. Other lines leave those columns empty, and these the ones that calls alone have.
const tracedPut = "put"

// trace writes every watched call. A disk that is full ends it and nothing else.
type trace struct {
	file *os.File
	rows bytes.Buffer // whole ones: other daemons may write the same file
	w    *csv.Writer  // into rows
	row  []string
	err  error // of writing; nothing is written any more
}

// rowsAtOnce is how many bytes of rows are kept for one write.
const rowsAtOnce = 64 << 10

// openTrace appends to the file; nil: none is wanted. A file of another kind, or of a version with other columns, is left alone.
func openTrace(path string) (*trace, error) {
	if path == "" {
		return nil, nil
	}
	f, headed, err := csvfile.Open(path, traceColumns, 0o600)
	if noFile := new(fs.PathError); errors.As(err, &noFile) {
		return nil, fmt.Errorf("trace: %w; give --trace a file that can be written", err)
	}
	if err != nil {
		return nil, fmt.Errorf("trace %s: %w; give --trace another file, or move this one away", path, err)
	}
	t := &trace{file: f}
	t.w = csv.NewWriter(&t.rows)
	if !headed {
		_ = t.w.Write(traceColumns) // into memory
	}
	return t, nil
}

func (t *trace) write(x *tuner.Watched) {
	ran := "-"
	if x.Ran != actions.Default {
		ran = x.Ran.String()
	}
	t.row = append(t.row[:0], ns(x.AtNs), strconv.FormatUint(uint64(x.Comm), 16), strconv.FormatUint(x.Seq, 10), x.Bucket.Collective.String(),
		strconv.Itoa(int(x.Bucket.Log2Bytes)), strconv.FormatUint(x.Bytes, 10), x.Action.String(), ran, ns(x.CounterNs), ns(x.SignalNs),
		ns(x.SkewNs), strconv.Itoa(int(x.FirstRank)), strconv.FormatUint(uint64(x.Plan), 10), strconv.FormatBool(x.Sound), strconv.Itoa(x.Alarms),
		"", "", "", "", strconv.FormatBool(x.Idle))
	t.add()
}

// add takes the row in.
func (t *trace) add() {
	_ = t.w.Write(t.row) // into memory
	if t.w.Flush(); t.rows.Len() >= rowsAtOnce {
		t.out()
	}
}

// out writes whole rows at once: what another process appends comes before them or behind.
func (t *trace) out() {
	if t.err == nil && t.rows.Len() > 0 {
		_, t.err = t.file.Write(t.rows.Bytes())
	}
	t.rows.Reset()
}

func ns(v state.Ns) string { return strconv.FormatInt(int64(v), 10) }

func (t *trace) writePut(x *tuner.WatchedPut) {
	o, alarms := &x.Observation, "0"
	if x.Alarm {
		alarms = "1"
	}
	t.row = append(t.row[:0], ns(o.AtNs), strconv.FormatUint(uint64(x.Comm), 16), strconv.FormatUint(uint64(x.Number), 10), tracedPut, strconv.Itoa(int(x.Bucket.Log2Bytes)),
		strconv.FormatUint(o.Bytes, 10), o.Action.String(), "-", ns(o.CounterNs), ns(o.SignalNs), "", "", "", "", alarms,
		strconv.Itoa(int(x.Rank)), strconv.Itoa(int(x.Peer)), strconv.Itoa(int(x.Context)), x.Diagnosis.String(), "")
	t.add()
}

func (t *trace) flush() error {
	t.w.Flush()
	t.out()
	return t.err
}

func (t *trace) close() error {
	if t == nil {
		return nil
	}
	return errors.Join(t.flush(), t.file.Close())
}

// traceOut takes what the core saw in a step.
func (d *Daemon) traceOut(out *tuner.Output) {
	if d.trace == nil {
		return
	}
	for i := range out.Watched {
		d.trace.write(&out.Watched[i])
	}
	for i := range out.Puts {
		d.trace.writePut(&out.Puts[i])
	}
}

// flushTrace is for the end of a tick, so that the file is never far behind.
func (d *Daemon) flushTrace() {
	if d.trace == nil {
		return
	}
	if err := d.trace.flush(); err != nil {
		d.log.Error("the trace ends here; tuning goes on", "err", err)
		d.traceError = err.Error()
		_ = d.trace.file.Close()
		d.trace = nil
	}
}
