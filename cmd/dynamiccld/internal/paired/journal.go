package paired

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/filelock"
	"dynamiccl/cmd/dynamiccld/internal/sweep"
)

// Lines of the file, one JSON object each. The keys are an interface: add, never rename.
const (
	kindHead   = "head"
	kindRounds = "rounds"
	kindPhase  = "phase"
	kindEnd    = "end"
)

// Head is what was compared and where.
type Head struct {
	Kind    string             `json:"kind"`
	Machine *sweep.Description `json:"machine"`
	Arms    []ArmHead          `json:"arms"`
	Phases  []PhaseHead        `json:"phases"`
	Calls   int                `json:"calls"`
	BatchUs int64              `json:"batch_us"`
	Time    string             `json:"time"`
	Comms   int                `json:"comms,omitempty"` // communicators of a rank; left out: one
	CPUs    int                `json:"cpus_per_rank,omitempty"`
	Serve   []string           `json:"serve"`
	Store   string             `json:"store"` // "": thrown away
}

// ArmHead is one arm. The first is the base.
type ArmHead struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	Learner string   `json:"learner,omitempty"`
	Environ []string `json:"environ,omitempty"`
}

// PhaseHead is one phase as it was asked for.
type PhaseHead struct {
	Load     string  `json:"load"`
	LoadSize int     `json:"load_size,omitempty"`
	Seconds  float64 `json:"seconds"`
}

// Rounds are the raw values of a point in a phase, one for each round of Every.
type Rounds struct {
	Kind       string               `json:"kind"`
	Phase      int                  `json:"phase"`
	Collective string               `json:"collective"`
	Bytes      uint64               `json:"bytes"`
	Every      int                  `json:"every"`
	AtS        []float64            `json:"at_s"`
	Us         map[string][]float64 `json:"us"`      // median of a batch, slowest rank
	MeanUs     map[string][]float64 `json:"mean_us"` // mean of a batch, slowest rank
}

// PhaseSummary is what a phase showed.
type PhaseSummary struct {
	Kind       string                      `json:"kind"`
	Phase      int                         `json:"phase"`
	Load       string                      `json:"load"`
	Seconds    float64                     `json:"seconds"` // that it took
	Rounds     int                         `json:"rounds"`  // complete ones
	Points     []PointSummary              `json:"points"`
	Geomean    map[string]Ratio            `json:"geomean"` // last half, over all points
	Collective map[string]map[string]Ratio `json:"by_collective"`
	Whole      map[string]float64          `json:"whole"` // all of the phase with all trials: geometric mean of the points'
	Worst      map[string]PointName        `json:"worst"`
	Adapt      map[string]Adapted          `json:"adapt"`
	Choices    map[string][]Choice         `json:"choices"`  // of arms with a daemon, at the end
	Detector   map[string]*Heard           `json:"detector"` // of these, in the phase
}

// PointName names a point and its ratio.
type PointName struct {
	Collective string  `json:"collective"`
	Bytes      uint64  `json:"bytes"`
	Ratio      float64 `json:"ratio"`
}

// PointSummary is a point in the last half of a phase; Whole is of all of it.
type PointSummary struct {
	Collective string             `json:"collective"`
	Bytes      uint64             `json:"bytes"`
	Rounds     int                `json:"rounds"`
	Us         map[string]float64 `json:"us"`
	Ratio      map[string]Ratio   `json:"ratio"`
	Whole      map[string]float64 `json:"whole"`
}

// Choice is what a daemon had chosen at a phase's end.
type Choice struct {
	Collective string  `json:"collective"`
	MinBytes   uint64  `json:"min_bytes"`
	Choice     string  `json:"choice"`
	SpeedUp    float64 `json:"speedup"` // by the daemon's own samples
	Calls      uint64  `json:"calls"`
	Tried      int     `json:"tried"`
}

// Daemon is what an arm's daemon says at the end.
type Daemon struct {
	Status control.Status    `json:"status"`
	Report control.RunReport `json:"report"`
	Links  []control.Link    `json:"links,omitempty"`
	Error  string            `json:"error,omitempty"`
}

// End closes the run.
type End struct {
	Kind    string             `json:"kind"`
	Stopped bool               `json:"stopped"`
	Error   string             `json:"error,omitempty"`
	Wrong   map[string]uint64  `json:"wrong"` // elements, by arm
	Daemons map[string]*Daemon `json:"daemons"`
}

// journal appends lines to a file; without a file it keeps nothing.
type journal struct {
	file *os.File
	over bool // a line could not be written, which was said
}

func openJournal(path string) (*journal, error) {
	if path == "" {
		return &journal{}, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--out: %w; name a file that you may write, in a folder that exists", err)
	}
	if !lock(f) {
		return nil, errors.Join(fmt.Errorf("--out: %s is being written by another run; wait for its end, or give another file", path), f.Close())
	}
	if err := endLine(f); err != nil {
		return nil, errors.Join(fmt.Errorf("--out %s: %w", path, err), f.Close())
	}
	return &journal{file: f}, nil
}

// lock keeps a plain file for one run until it is closed: whose lines stand in it nobody could tell of two.
func lock(f *os.File) bool {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return true // what else is wrong with it shows when it is read
	}
	return filelock.Take(f, unix.LOCK_EX)
}

// endLine refuses a file that does not begin with a JSON line, as one of JSON over many lines, and ends a last line that was cut off: the
// next one is whole then.
func endLine(f *os.File) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return err
	}
	const object = `{"`
	var last [1]byte
	first := make([]byte, min(info.Size(), int64(len(object))))
	if _, err := f.ReadAt(first, 0); err != nil {
		return err
	}
	if _, err := f.ReadAt(last[:], info.Size()-1); err != nil {
		return err
	}
	switch {
	case !strings.HasPrefix(object, string(first)):
		return errors.New("the file holds no JSON lines, and nothing is appended to it; name another")
	case last[0] != '\n':
		_, err = f.Write([]byte{'\n'})
	}
	return err
}

func (j *journal) add(line any) error {
	if j.file == nil || j.over {
		return nil
	}
	text, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(text, '\n')); err != nil {
		j.over = true
		return fmt.Errorf("--out: %w; make room, or give another file", err)
	}
	return nil
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	err := j.file.Sync()
	if errors.Is(err, unix.EINVAL) { // a pipe has nothing to be kept on
		err = nil
	}
	return errors.Join(err, j.file.Close())
}

// mostValues of a phase are kept, so that the file stays small enough for a repository: 6 bytes each.
const mostValues = 30_000

// every is the step that keeps no more than mostValues of so many rounds.
func every(rounds, points, arms int) int {
	return max(1, (rounds*points*(2*arms+1)+mostValues-1)/mostValues)
}

// thin takes each step-th value with four digits.
func thin(values []float64, step int) []float64 {
	out := []float64{}
	for i := 0; i < len(values); i += step {
		out = append(out, digits(values[i], 4))
	}
	return out
}

// digits rounds to so many significant ones.
func digits(v float64, n int) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	scale := math.Pow(10, float64(n-1)-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}
