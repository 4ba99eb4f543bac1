package control

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// RunReport is what the communicators of one `dynamiccld run` did. Its JSON keys are an interface: add, never rename.
type RunReport struct {
	Comms     []RunComm `json:"comms"`
	Elsewhere int       `json:"elsewhere"`        // communicators of its ranks that another run speaks for
	Strays    int       `json:"strays,omitempty"` // communicators since the daemon started whose ranks belong to no run
	Processes int       `json:"processes"`        // rank processes of any run that live
	Traffic   *Traffic  `json:"socket_traffic,omitempty"`
}

// Traffic is what was done for NCCL's Socket network in the run's processes of this host (docs/design.md, decision 21). What it was
// worth nobody knows: nothing ran without it.
type Traffic struct {
	LongBytes  uint64 `json:"long_bytes"`  // sent and received in messages that threads of ours could move
	MovedBytes uint64 `json:"moved_bytes"` // of these, those that they moved
	Together   uint64 `json:"one_packet"`  // messages that went in one packet with their size
}

// Add takes in that of another process.
func (t *Traffic) Add(other Traffic) {
	t.LongBytes += other.LongBytes
	t.MovedBytes += other.MovedBytes
	t.Together += other.Together
}

// RunComm is one communicator, living or gone.
type RunComm struct {
	CommStatus
	Buckets  []Bucket   `json:"buckets"`
	Captured []Captured `json:"captured,omitempty"`
	Replays  []Replay   `json:"replays,omitempty"` // of our kernels in CUDA graphs
}

// Captured is a choice that went into CUDA graphs, which run it for ever.
type Captured struct {
	Collective string `json:"collective"`
	MinBytes   uint64 `json:"min_bytes"`
	Choice     string `json:"choice"`
	Calls      uint64 `json:"calls"`
	Supported  bool   `json:"supported"` // something of this collective and size was measured
}

// NewRun gives an id to a run; 0 is none's.
func NewRun() uint64 {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	return binary.LittleEndian.Uint64(id[:]) | 1
}

// RunID writes a run's id as DYNAMICCL_RUN and the control socket have it.
func RunID(id uint64) string { return fmt.Sprintf("%016x", id) }

func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), backendTimeout)
	defer cancel()
	text := r.PathValue("id")
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || id == 0 || len(text) > 16 {
		s.fail(w, &Error{http.StatusBadRequest, fmt.Sprintf("run %q is not 1 to 16 hexadecimal digits", strings.ToValidUTF8(text, "?"))})
		return
	}
	st, err := s.backend.Status(ctx)
	if err != nil {
		s.fail(w, err)
		return
	}
	view, err := s.backend.Ran(ctx, id)
	if err != nil {
		s.fail(w, err)
		return
	}
	report := RunReport{Comms: []RunComm{}, Elsewhere: view.Elsewhere, Strays: view.Strays, Processes: view.Processes, Traffic: view.Traffic}
	now := s.now()
	for _, c := range view.Comms {
		out := RunComm{CommStatus: c.Status, Buckets: []Bucket{}}
		for _, v := range c.Views {
			b := FromView(v, st.NowNs, now)
			b.NCCLVersion = c.Status.NCCLVersion
			out.Buckets = append(out.Buckets, b)
		}
		for _, v := range c.Captured {
			low, _ := bucketRange(v.Bucket)
			out.Captured = append(out.Captured, Captured{v.Bucket.Collective.String(), low, v.Action.String(), v.Calls, v.Supported})
		}
		for _, v := range c.Replays {
			r := FromReplays(v, st.NowNs, now)
			r.NCCLVersion = c.Status.NCCLVersion
			out.Replays = append(out.Replays, r)
		}
		report.Comms = append(report.Comms, out)
	}
	s.reply(w, report)
}

// Run is what the communicators of one `dynamiccld run` did so far.
func (c *Client) Run(ctx context.Context, id uint64) (r RunReport, err error) {
	if err := c.call(ctx, http.MethodGet, "/v1/runs/"+RunID(id), nil, &r); err != nil {
		return r, err
	}
	for i := range r.Comms {
		if err := c.identify(r.Comms[i].Buckets); err != nil {
			return r, err
		}
	}
	return r, nil
}
