package sweep

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/filelock"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/internal/wholefile"
)

// Outcomes of a point. Only OutcomeOK gives a row.
const (
	OutcomeOK        = "ok"
	OutcomeOverruled = forced.Overruled
	OutcomeUnseen    = forced.Unseen
	OutcomeWrong     = forced.Wrong
	OutcomeHung      = forced.Hung
	OutcomeFailed    = forced.Failed
	outcomeDone      = "done" // of a whole bucket: every point has its line
)

// Point is one line of the journal. The keys are an interface: add, never rename.
type Point struct {
	Round      int       `json:"round"` // from 1
	Collective string    `json:"collective"`
	Bytes      uint64    `json:"bytes"`
	Action     string    `json:"action,omitempty"` // asked for, as actions.Parse reads it
	Nth        int       `json:"nth,omitempty"`    // how often the bucket had this action before: the default comes several times
	Outcome    string    `json:"outcome"`
	Reason     string    `json:"reason,omitempty"`
	MedianUs   float64   `json:"median_us,omitempty"` // of one call, the slowest rank's
	IQRUs      float64   `json:"iqr_us,omitempty"`    // interquartile range over replays of the slowest rank of each
	RankUs     []float64 `json:"rank_us,omitempty"`   // every rank's median
	Replays    int       `json:"replays,omitempty"`
	Calls      int       `json:"calls,omitempty"` // of a replay
	// What the daemon would have charged the choice, where samples were asked for: the median over calls.
	SampledUs    float64 `json:"sampled_us,omitempty"`
	SampledCalls int     `json:"sampled_calls,omitempty"`
	WatchedUs    float64 `json:"watched_us,omitempty"` // MedianUs of the calls that gave the samples
	Ran          string  `json:"ran,omitempty"`        // by NCCL's profiler event
	Grid         int     `json:"grid,omitempty"`       // blocks of the captured kernel
	Choices      string  `json:"choices,omitempty"`
	// Where single calls are measured.
	Noise  *CallNoise  `json:"noise,omitempty"`
	CallUs [][]float64 `json:"call_us,omitempty"` // of each rank
}

type pointKey struct {
	round      int
	collective string
	bytes      uint64
	action     string
	nth        int
}

func (p *Point) key() pointKey { return pointKey{p.Round, p.Collective, p.Bytes, p.Action, p.Nth} }

// pointBegins every line.
const pointBegins = `{"round":`

// Paths of a sweep's files, from the table's.
type paths struct{ table, journal, description string }

func pathsOf(table string) paths {
	stem := strings.TrimSuffix(table, ".csv")
	return paths{table, stem + ".points.jsonl", stem + ".json"}
}

// has says whether a file is one of them by its name.
func (p paths) has(file string) bool {
	return slices.Contains([]string{filepath.Clean(p.table), filepath.Clean(p.journal), filepath.Clean(p.description)}, filepath.Clean(file))
}

// mayBe refuses files that cannot be a sweep's, be it that they are no plain files.
func (p paths) mayBe() error {
	for _, path := range []string{p.table, p.journal, p.description} {
		if _, err := wholefile.Target(path); err != nil {
			return fmt.Errorf("--out: %w", err)
		}
		if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
			return fmt.Errorf("--out %s: its folder is not there; name a file that you may write, in a folder that exists", path)
		}
	}
	return nil
}

// journal is the file that every point is written to at once.
type journal struct {
	file   *os.File
	points []Point
	at     map[pointKey]int // the last line of each
}

// readJournal reads lines and says how long their file is without a last line that a crash has cut off.
func readJournal(path string) (points []Point, length int64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	whole := bytes.LastIndexByte(text, '\n') + 1
	if cut := text[:min(len(text), len(pointBegins))]; whole == 0 && !strings.HasPrefix(pointBegins, string(cut)) {
		return nil, 0, fmt.Errorf("%s: line 1 is no point of a sweep; move the file away, or give --restart", path)
	}
	text = text[:whole]
	for n := 1; len(text[length:]) > 0; n++ {
		line := text[length:]
		line = line[:bytes.IndexByte(line, '\n')+1]
		var p Point
		if err := json.Unmarshal(line, &p); err != nil || p.Outcome == "" || p.Collective == "" {
			return nil, 0, fmt.Errorf("%s: line %d is no point of a sweep (%w); move the file away, or give --restart", path, n, cmp.Or(err, errBadPoint))
		}
		points = append(points, p)
		length += int64(len(line))
	}
	return points, length, nil
}

var errBadPoint = errors.New("it names no collective or outcome")

// dropEmpty takes away a journal without a line: beside somebody else's table it would only be in the way.
func (j *journal) dropEmpty() error {
	info, err := j.file.Stat()
	if err != nil || info.Size() > 0 {
		return err
	}
	return os.Remove(j.file.Name())
}

// openJournal opens the journal for more lines, or for the first when it begins anew. It is locked until it is closed: two
// sweeps must not write one table.
func openJournal(path string, anew bool) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--out: %w; name a file that you may write, in a folder that exists", err)
	}
	j := &journal{file: f, at: map[pointKey]int{}}
	if err := takeJournal(f, path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	var points []Point
	length := int64(0)
	if !anew {
		points, length, err = readJournal(path)
	}
	if err == nil {
		err = f.Truncate(length)
	}
	if err == nil {
		_, err = f.Seek(length, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for _, p := range points {
		j.remember(p)
	}
	return j, nil
}

// takeJournal locks what was opened at the path, unless another sweep has that, or has just taken it away (dropEmpty): nobody would find
// what is written to it.
func takeJournal(f *os.File, path string) error {
	if !filelock.Take(f, unix.LOCK_EX) {
		return fmt.Errorf("%s is being written by another sweep; wait for its end, or give another --out", path)
	}
	opened, err := f.Stat()
	if err != nil {
		return err
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(opened, there) {
		return fmt.Errorf("%s was taken away while this sweep began; run the same command again", path)
	}
	return nil
}

func (j *journal) remember(p Point) {
	if i, again := j.at[p.key()]; again {
		j.points[i] = p // keeps its place in the table
		return
	}
	j.at[p.key()] = len(j.points)
	j.points = append(j.points, p)
}

// add writes a point. It is in the kernel's hands when this returns: a crash of ours loses nothing.
func (j *journal) add(p Point) error {
	line, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("--out: %w; make room and run the same command again", err)
	}
	j.remember(p)
	return nil
}

// has says that the point needs no measurement any more.
func (j *journal) has(k pointKey, retry bool) bool {
	i, ok := j.at[k]
	return ok && !(retry && j.points[i].Outcome != OutcomeOK)
}

// ok says that the point has a row.
func (j *journal) ok(k pointKey) bool {
	i, there := j.at[k]
	return there && j.points[i].Outcome == OutcomeOK
}

// done says that every point of the bucket is there, for these choices.
func (j *journal) done(round int, collective string, bytes uint64, choices string, retry bool) bool {
	i, ok := j.at[pointKey{round: round, collective: collective, bytes: bytes}]
	if !ok || j.points[i].Choices != choices {
		return false
	}
	for _, p := range j.points {
		if retry && p.Round == round && p.Collective == collective && p.Bytes == bytes && p.Outcome != OutcomeOK && p.Outcome != outcomeDone {
			return false
		}
	}
	return true
}
