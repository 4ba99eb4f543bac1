package workers

import (
	"errors"
	"fmt"
	"strings"
)

// Ready is what a rank says once its communicators stand.
type Ready struct {
	NCCL          int    `json:"nccl"` // NCCL_VERSION code
	GPU           string `json:"gpu"`
	UUID          string `json:"uuid"`
	PCIBus        string `json:"pciBus"`
	DriverVersion int    `json:"driverVersion"` // of the CUDA driver, 13000: 13.0
	CommHash      string `json:"commHash"`      // of the first one; "": not known
}

// Called is what some calls without a CUDA graph took on one rank.
type Called struct {
	Us    float64 `json:"us"`    // host time of one call
	Wrong uint64  `json:"wrong"` // elements of the last result
}

// Ask says what to measure.
type Ask struct {
	Collective string
	Bytes      uint64 // nccl-tests' size
	Mode       string // Graph, Stream, Free or Host; of several communicators Graph, one of each
	Memory     string // NCCLMemory; "": the ranks' buffers
	Calls      int    // of one replay
	WarmUs     float64
	Replays    int // at most
	MinReplays int
	BudgetUs   float64
}

// Modes of Ask.
const (
	Graph  = "graph"
	Stream = "stream" // all calls of a replay are enqueued before the first begins
	Free   = "free"   // stream calls that begin at once
	Host   = "host"   // the host's time to enqueue them, none of which begins before the last one is
)

// NCCLMemory is Ask.Memory: buffers of NCCL's own (ncclMemAlloc) that nobody registered. In a graph NCCL does so itself, and ranks then
// read and write each other's buffers, which they cannot with cudaMalloc's.
const NCCLMemory = "nccl"

// Measured is what a rank measured.
type Measured struct {
	Us        []float64 `json:"us"`         // of one call, a value a replay
	Wrong     uint64    `json:"wrong"`      // elements, of all graphs
	Grid      int       `json:"grid"`       // blocks of the first graph's first kernel, 0: not known
	CaptureUs float64   `json:"capture_us"` // of all graphs together
}

// request is one line to a worker. A field that a command does not have is left out.
type request struct {
	Do         string   `json:"do"`
	ID         string   `json:"id,omitempty"`
	Collective string   `json:"collective,omitempty"`
	Bytes      uint64   `json:"bytes,omitempty"`
	Mode       string   `json:"mode,omitempty"`
	Memory     string   `json:"memory,omitempty"`
	Calls      int      `json:"calls,omitempty"`
	WarmUs     *float64 `json:"warm_us,omitempty"` // a measurement has it, also when it is 0
	Replays    int      `json:"replays,omitempty"`
	MinReplays int      `json:"min_replays,omitempty"`
	BudgetUs   *float64 `json:"budget_us,omitempty"`
	Kind       string   `json:"kind,omitempty"`
}

var (
	// ErrHung is returned when ranks did not answer in time. The group is of no more use: Kill it.
	ErrHung = errors.New("no answer in time")

	// ErrDied is returned when the process of a rank ended. The group is of no more use: Kill it.
	ErrDied = errors.New("a rank's process ended")

	// ErrRefused is returned when a rank answered with an error of its own.
	ErrRefused = errors.New("a rank failed")
)

// ranksOf writes "rank 1", "ranks 1, 3".
func ranksOf(ranks []int) string {
	text := make([]string, len(ranks))
	for i, r := range ranks {
		text[i] = fmt.Sprint(r)
	}
	if len(text) == 1 {
		return "rank " + text[0]
	}
	return "ranks " + strings.Join(text, ", ")
}
