package daemon

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"dynamiccl/actions"
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
	w    *csv.Writer
	row  []string
}

// maxRow is more than any row of a trace is long.
const maxRow = 4096

// openTrace appends to the file; nil: none is wanted. A file of another kind, or of a version with other columns, is left alone.
func openTrace(path string) (*trace, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("trace: %w; give --trace a file that can be written", err)
	}
	begun, err := goOn(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("trace %s: %w; give --trace another file, or move this one away", path, err), f.Close())
	}
	t := &trace{file: f, w: csv.NewWriter(bufio.NewWriterSize(f, 1<<16))} // which it takes as its own buffer
	if !begun {
		_ = t.w.Write(traceColumns) // into memory
	}
	return t, nil
}

// goOn reports whether a file has our head already. A row at its end that a full disk has cut off is taken away.
func goOn(f *os.File) (begun bool, err error) {
	info, err := f.Stat()
	if err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		err = errors.New("it is a pipe, and who reads it could hold the daemon up")
	}
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false, err
	}
	want := strings.Join(traceColumns, ",") + "\n"
	head := make([]byte, len(want))
	n, err := f.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return false, err
	}
	if string(head[:n]) != want {
		return false, fmt.Errorf("it begins with %.60q and not with the columns of this version (%.30q...), so nothing is appended to it", head[:n], want)
	}
	from := max(int64(len(want)), info.Size()-maxRow)
	end := make([]byte, info.Size()-from)
	if _, err := f.ReadAt(end, from); err != nil && err != io.EOF {
		return false, err
	}
	if cut := bytes.LastIndexByte(end, '\n') + 1; cut < len(end) {
		return true, f.Truncate(from + int64(cut))
	}
	return true, nil
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
	_ = t.w.Write(t.row)
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
	_ = t.w.Write(t.row)
}

func (t *trace) flush() error {
	t.w.Flush()
	return t.w.Error()
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
