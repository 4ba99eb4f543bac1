package control

import (
	"context"
	"time"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Backend is the daemon behind the socket. Every method is called from many goroutines and must return by ctx.
type Backend interface {
	Status(ctx context.Context) (Status, error)
	Buckets(ctx context.Context) ([]tuner.BucketView, error)
	Findings(ctx context.Context) ([]tuner.Finding, error)
	Alarms(ctx context.Context) ([]tuner.Alarmed, error)
	Replays(ctx context.Context) ([]tuner.ReplayView, error)
	Links(ctx context.Context) ([]tuner.LinkView, error)
	// Ran shows what the communicators of one `dynamiccld run` did so far, those that are gone included.
	Ran(ctx context.Context, run uint64) (RunView, error)
	// Import takes rules over as starting points, and what is refused. They were validated; an error means that none was taken.
	Import(ctx context.Context, rules []actions.Rule, refused []actions.Refusal) error
}

// RunView is what the core knows of the communicators that one `dynamiccld run` speaks for.
type RunView struct {
	Comms     []CommView
	Elsewhere int // communicators with ranks of this run that another run speaks for
	Strays    int // communicators since the daemon started whose ranks belong to no run
	Processes int // rank processes of any run that live
	Traffic   *Traffic
}

// CommView is one communicator, living or gone.
type CommView struct {
	Status   CommStatus
	Views    []tuner.BucketView
	Captured []CapturedView // by collective, size and action
	Replays  []tuner.ReplayView
}

// CapturedView is a choice that went into CUDA graphs, which run it for ever.
type CapturedView struct {
	Bucket    state.Bucket
	Action    actions.Action
	Calls     uint64
	Supported bool // by a measurement of the bucket, stored or of this life; or the user wants NCCL's own choice
}

// Status is the daemon as a whole. Its JSON keys are an interface: add, never rename.
type Status struct {
	PID        int       `json:"pid"`
	Version    string    `json:"version"`
	Layout     int       `json:"layout,omitempty"` // of the shared memory; 0: of an early release, which does not say
	StartedAt  time.Time `json:"started_at"`
	Dir        string    `json:"dir"`
	StorePath  string    `json:"store_path"`
	StoreState string    `json:"store_state"`           // "ok", or in words why choices are kept in memory only
	StoreMoved string    `json:"store_moved,omitempty"` // where a store that was corrupt lies now; a new one has been begun
	TraceError string    `json:"trace_error,omitempty"` // why the trace ended early
	Learner    string    `json:"learner"`
	Explore    bool      `json:"explore"`

	// NowNs is the clock of BucketView.SinceNs and Finding.AtNs at the moment of this status.
	NowNs state.Ns `json:"-"`

	Comms       []CommStatus `json:"comms"`
	Processes   int          `json:"processes"`    // rank processes that live
	UntilUnused bool         `json:"until_unused"` // ends with the last `dynamiccld run`
	Others      []OtherRanks `json:"other_layouts,omitempty"`

	Samples      uint64 `json:"samples"`      // read from rings
	Dropped      uint64 `json:"dropped"`      // by ranks, because a ring was full
	Unjoined     uint64 `json:"unjoined"`     // matched no getCollInfo call
	Untold       uint64 `json:"untold"`       // found no room on their way between hosts
	Decisions    uint64 `json:"decisions"`    // getCollInfo calls of all communicators so far, as ranks report them
	Ignored      uint64 `json:"ignored"`      // planned actions that NCCL marked -1 after all
	Publications uint64 `json:"publications"` // plans written into records

	Graphs *Graphs `json:"graphs,omitempty"` // nil: no CUDA graph has run one of our kernels
	Links  *Links  `json:"links,omitempty"`  // nil: no put over GIN was timed

	Core          tuner.Totals          `json:"core"`
	Overruled     []tuner.OverruledCall `json:"overruled_calls,omitempty"` // of Core.Overruled, the first ones
	Unknown       []tuner.UnknownCalls  `json:"not_known_calls,omitempty"` // of Core.Ran.NotKnown, by collective and choice
	FindingCounts map[string]uint64     `json:"findings"`                  // by diagnosis, since the start
}

// OtherRanks are rank processes with a plugin of another release, which this daemon does not tune.
type OtherRanks struct {
	Layout    uint32 `json:"layout"`
	Processes int    `json:"processes"`
}

// CommStatus is one communicator. ID is 16 hexadecimal digits.
type CommStatus struct {
	ID          string `json:"id"`
	RanksJoined int    `json:"ranks_joined"`
	Ranks       int    `json:"ranks"`
	Nodes       int    `json:"nodes"`
	Transport   string `json:"transport,omitempty"` // nvlink, pcie, socket, rdma; "": not known, or ranks differ
	NICs        int    `json:"nics,omitempty"`      // a node; 0: none or not known
	NCCLVersion string `json:"nccl_version"`        // "2.30.7"; "": not known
	Active      bool   `json:"active"`
	Why         string `json:"why,omitempty"`     // why it is not active, or only in part
	Trouble     string `json:"trouble,omitempty"` // a rank that stands still, and hence all
	Epoch       uint64 `json:"epoch"`
	PlanVersion uint64 `json:"plan_version"`  // the newest; 0: NCCL's defaults
	Processes   []int  `json:"processes"`     // pids
	Calls       uint64 `json:"calls"`         // getCollInfo calls of the rank that made most
	GIN         string `json:"gin,omitempty"` // what came of NCCL's GIN, where the ranks took part in making it

	// Ranks on several hosts: apart, met or parted; "": all are on this one, or have not joined yet. RanksJoined are those of this host.
	Hosts      string `json:"hosts,omitempty"`
	PlanAgreed uint64 `json:"plan_agreed,omitempty"` // in force on all of them; 0: NCCL's defaults
	Follows    bool   `json:"follows,omitempty"`     // the daemon of rank 0's host tunes it
}
