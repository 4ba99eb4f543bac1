package tuner

import (
	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// CommID is NCCL's commHash.
type CommID uint64

// MarkSet says what all ranks can run in a bucket: bit 3*algorithm+protocol, MarkDeviceLL, a bit for each of our kernels, and for GIN;
// the same bits as dyn_rank.marks. On registered memory it says what NCCL can be told by name, and our kernels.
type MarkSet uint32

// MarkDeviceLL says that NCCL runs its device kernel where LL is chosen, whatever the algorithm and number of channels.
const MarkDeviceLL MarkSet = 1 << 30

// Our own kernels: ranks have opened each other's memory, and the kernel can run any call of the bucket.
const (
	MarkOneShot MarkSet = 1 << 26 << actions.OneShot
	MarkTwoShot MarkSet = 1 << 26 << actions.TwoShot
	MarkBulk    MarkSet = 1 << 26 << actions.Bulk
	MarkDirect  MarkSet = 1 << 26 << actions.Direct // and has had registered buffers in such a call
)

// Our kernels on GIN, by the backend that all ranks have.
const (
	MarkGDAKI MarkSet = 1 << 23 << actions.BackendGDAKI
	MarkProxy MarkSet = 1 << 23 << actions.BackendProxy
)

// MarkContexts says beside it that NCCL has granted several contexts to all ranks, and that a call has as many of them as its action says.
const MarkContexts MarkSet = 1 << 22

// MarkOf has the bits that all say of an action that it can run; 0: there are none. Channels, CTAs and threads have no part in it.
func MarkOf(a actions.Action) MarkSet {
	switch a.Path {
	case actions.PathCollective:
		return 1 << (actions.NumProtocols*uint(a.Algorithm) + uint(a.Protocol))
	case actions.PathSymmetric: // on registered memory alone (dyn_symmetric_mark of nccltuner/plugin/named.h)
		switch {
		case a.Symmetric == actions.SymmetricAny:
		case a.Symmetric <= actions.SymmetricLDMC:
			return 1 << (5 + a.Symmetric)
		default:
			return 1 << (9 + a.Symmetric)
		}
	case actions.PathLSA:
		return MarkOneShot << a.Kernel
	case actions.PathGIN:
		switch {
		case a.Backend == actions.BackendNone:
		case a.Contexts == 0:
			return 1 << 23 << a.Backend
		default:
			return 1<<23<<a.Backend | MarkContexts
		}
	}
	return 0
}

// Has reports whether all ranks can run a: NCCL's cost table allows its algorithm and protocol, or our kernel is there.
func (m MarkSet) Has(a actions.Action) bool {
	bits := MarkOf(a)
	return a.Path == actions.PathDefault || bits != 0 && m&bits == bits
}

// Event is what Step takes in: one of CommJoined, CommLeft, KernelsOpen, Outstanding, Marks, Published, Agreed, Parted, *Sample,
// *Replay, *Trip, Advised, Tick.
type Event interface{ event() }

// CommJoined says that all ranks of a communicator have registered, or, on several hosts, have met.
type CommJoined struct {
	Comm          CommID
	Shape         state.Shape
	Heard         uint64    // bit r: samples of rank r come here, and others are on other hosts; 0: of all ranks
	NICs          int       // a node; 0: none or not known
	NCCLVersion   int       // NCCL_VERSION code, 0: not known
	Machine       string    // for Key; "": that of the Config
	EventTimed    bool      // CUDA events time the calls of every rank: then trees can be measured on one node, too
	Explore       bool      // false: a rank has no profiler, or the user said so: stored choices only
	FixedNumerics bool      // the user said so: collectives that add up keep NCCL's own choice
	MaxChannels   int       // 0: not known
	OwnGathers    bool      // ranks give an AllGather NCCL's own number of channels, whatever a plan says, or promise none with another
	Prior         []Learned // what the store knows of this shape; nil: nothing
	LastID        uint32    // largest Entry.ID that ranks may have seen from an earlier daemon
	// InForce is what an earlier daemon had the buckets settle on: ranks run it now.
	InForce map[state.Bucket]actions.Action
	// Outstanding is how many kernels that wait for peers may be on a GPU of the communicator at once, one of its own among them;
	// 0: not known, as 1.
	Outstanding int
	// Multiprocessors are those of the communicator's least GPU; 0: not known, as an H200's.
	Multiprocessors int
	// MaxCTAs are those that the program lets a kernel of NCCL's have, for which ours stand, on the rank that says least; 0: as many as there are.
	MaxCTAs int
}

// KernelsOpen says that every rank of a communicator can run our own kernels from now on.
type KernelsOpen struct{ Comm CommID }

// Outstanding says what CommJoined.Outstanding, Multiprocessors and MaxCTAs would be now.
type Outstanding struct {
	Comm            CommID
	Kernels         int
	Multiprocessors int
	MaxCTAs         int
}

// CommLeft says that every rank of a communicator has left or died.
type CommLeft struct{ Comm CommID }

// Marks says which algorithms and protocols NCCL allows for a bucket on every rank, and which of our kernels every rank can
// run. Differ: ranks do not agree.
type Marks struct {
	Comm   CommID
	Bucket state.Bucket
	Set    MarkSet
	Differ bool
}

// Published says that the latest Plan of a communicator is what its ranks take over next, and under which version: a
// Sample's Plan is that or a later one from the first call on for which it was in force.
type Published struct {
	Comm    CommID
	Version uint64
}

// Sample is one collective on one rank. A pointer is the event, so that the hot path does not allocate.
type Sample struct {
	Comm       CommID
	Seq        uint64
	Rank       int32
	Bucket     state.Bucket
	Bytes      uint64
	Plan       uint32 // low 32 bits of the version of the plan in force; 0: none
	Made       uint16 // EventTimed: calls of its bucket so far, modulo 2^16
	EntryCall  uint8  // EventTimed: of its plan entry, from 1, saturates; 0: it has none
	StartNs    uint64 // first kernel start, or the stream's arrival (EventTimed), GPU clock (the host's when HostTimed); 0: not known
	ClockNs    int64  // host's clock less the GPU's, too large by what telling took; 0: not known
	RecvNs     int64  // host's clock at the end of the last network receive; EventTimed: when the call was issued; 0: not known
	CounterNs  state.Ns
	SignalNs   state.Ns
	Action     actions.Action
	Ran        actions.Action // PathDefault: not known
	Aggregated bool
	Wished     bool // Action is a name that NCCL may decline
	HostTimed  bool
	EventTimed bool // by CUDA events around the call: the launch is in it, and its end is the call's
	Slow       bool // its host took too long to enqueue it: no times
}

// Replay is one of our kernels that a CUDA graph ran again, on one rank. A pointer is the event, as with Sample.
type Replay struct {
	Comm      CommID
	Number    uint32 // among the communicator's kernels in graphs, the same on all ranks; wraps
	Rank      int32
	Bucket    state.Bucket
	Bytes     uint64
	Action    actions.Action // that was captured
	Ran       actions.Action // PathDefault: not known
	CounterNs state.Ns       // of the kernel's own time, since it began: its sends are issued; 0: not measured
	SignalNs  state.Ns       // all data of its peers is there
}

// Advised gives choices from outside (an imported file) to a communicator: starting points that must still be measured
// better than NCCL's default before they stay. What it refuses (Refusal) comes before them.
type Advised struct {
	Comm  CommID
	Prior []Learned
}

// Tick lets time pass: schedules (re-measuring the default, dropping incomplete groups) are checked.
type Tick struct{}

func (CommJoined) event()  {}
func (CommLeft) event()    {}
func (KernelsOpen) event() {}
func (Outstanding) event() {}
func (Marks) event()       {}
func (Published) event()   {}
func (*Sample) event()     {}
func (*Replay) event()     {}
func (Advised) event()     {}
func (Tick) event()        {}

// Plan is what Step wants published for a communicator. Entries are complete: a bucket that is not listed passes through.
type Plan struct {
	Comm        CommID
	SampleEvery int  // epochs; power of two; 0: no sampling
	Closely     bool // puts over GIN are timed more often: 1 call in 16
	Entries     []Entry

	// Of calls that go into no CUDA graph, and of those that do: NCCL's default, whatever Entries say.
	DefaultCalls, DefaultGraphs bool
}

// Called is what calls run by that go into no CUDA graph.
func (p *Plan) Called() []Entry {
	if p.DefaultCalls {
		return nil
	}
	return p.Entries
}

// Entry is what one bucket does: its next Skip calls run the base, the len(Trials) behind them the trials, all later ones the base.
type Entry struct {
	Bucket state.Bucket
	ID     uint32 // changes whenever trials start anew
	Base   actions.Action
	Skip   int // at most MaxSkip
	Trials []actions.Action
}

// Action is what the n-th call runs since the entry came into force, from 1.
func (e *Entry) Action(n int) actions.Action {
	if i := n - 1 - e.Skip; i >= 0 && i < len(e.Trials) {
		return e.Trials[i]
	}
	return e.Base
}

// Learned is a choice worth keeping on disk.
type Learned struct {
	Key      Key
	Action   actions.Action
	CostNs   float64 // mean
	Default  float64 // mean of NCCL's default in the same condition, ns
	Calls    uint64
	SinceNs  state.Ns // when Action came to be chosen, by the clock of Step; 0: not known
	SeenNs   state.Ns // when a communicator of the Key's shape was last there, to a day; 0: now. A store's own, the core leaves it alone
	Evidence map[actions.Action]Estimate
	Refused  []actions.Action // they hung their ranks or gave wrong elements where somebody measured them: nobody tries them here

	Diagnosis   agents.Diagnosis // last
	DiagnosisNs state.Ns         // when, by the clock of Step; 0: never
}

// Key is what learned choices and experience are filed under.
type Key struct {
	Machine     string // machine shape: GPUs, links, NICs; "" when not known
	GPUArch     string
	NCCLVersion int
	Shape       state.Shape
	Bucket      state.Bucket
}

// Estimate is the measured cost of one action. Latencies are skewed to the right, so the mean is the geometric one and
// the variance is that of the logarithm.
type Estimate struct {
	N      int
	MeanNs float64
	VarLog float64 // sample variance of ln(cost); 0 while N < 2
}

// Finding is something to tell people: a diagnosis, a slow rank, a guard that reverted.
type Finding struct {
	Comm      CommID
	Bucket    state.Bucket
	AtNs      state.Ns
	Diagnosis agents.Diagnosis
	Text      string
}

// Output is what one Step asks its caller to do. The slices are valid until the next Step.
type Output struct {
	Plans    []Plan
	Learned  []Learned
	Findings []Finding
	Alarms   []Alarmed    // of group calls; Totals.Alarms counts them
	Watched  []Watched    // where Config.Trace is set
	Puts     []WatchedPut // likewise
}

// Watched is one call that all ranks have reported.
type Watched struct {
	Comm   CommID
	Bucket state.Bucket
	state.Observation
	Sound  bool // it is a cost of what was asked for
	Alarms int  // that it raised
}

// WatchedPut is one way of a put over GIN that both ranks told of.
type WatchedPut struct {
	Comm        CommID
	Rank, Peer  int32
	Context     uint8
	Number      uint32       // of the call in its lane
	Bucket      state.Bucket // of its bytes; AllToAll stands for puts
	Observation state.Observation
	Alarm       bool             // with this put, or since the way's last one by what a way beside it tells
	Diagnosis   agents.Diagnosis // in force of its link
}

// BucketView is what people see of a bucket: why, table, status and metrics read it.
type BucketView struct {
	Comm        CommID
	Shape       state.Shape
	Bucket      state.Bucket
	Choice      actions.Action
	DeviceLL    bool // Choice is NCCL's device kernel, and not the classic one of that name
	SinceNs     state.Ns
	Choices     []ActionView // in the order of the action set, only those measured in this condition
	SpeedUp     float64      // default's mean over the choice's mean; 1 when unknown
	SpeedUpLow  float64      // 95% interval
	SpeedUpHigh float64
	Stored      float64 // speed-up of Choice as it was stored, where it is in force on that word alone; 0: it is not
	Expected    float64 // speed-up that the learner expected of Choice from all but its own measurements; 0: it cannot say
	ExpectedSD  float64 // standard deviation of its logarithm
	Calls       uint64
	Ledger      Ledger
	Diagnosis   agents.Diagnosis // last
	DiagnosisNs state.Ns         // when; 0: never
	MeasuredNs  state.Ns         // when this bucket's first call was measured; 0: none was

	// DiagnosedBefore: Diagnosis is the store's word, of an earlier daemon or communicator; costs have not changed since MeasuredNs.
	DiagnosedBefore bool

	CusumCounter float64 // larger of the two sides, as a fraction of the alarm threshold
	CusumSignal  float64
	Exploring    bool
	Reward       Reward           // what Choices and Ledger count
	MostCTAs     int              // of our kernels, where Beside or the program leaves fewer than a set has otherwise; 0: as many as these are
	Beside       int              // kernels that may wait beside one of these, where that is why
	Computes     bool             // or the program may compute beside these calls
	Refused      []actions.Action // that are never tried, for they hung their ranks or gave wrong elements when they were measured
	Silent       []actions.Action // that are not tried any more, since nobody heard of their trials
	Audit        *AuditView       // of the communicator's steps; nil: none has come to anything
	Fixed        bool             // numerics are, so it keeps NCCL's default
	Note         string           // why nothing is chosen, when so
}

// ActionView is one action's measurements.
type ActionView struct {
	Action   actions.Action
	Estimate Estimate
}
