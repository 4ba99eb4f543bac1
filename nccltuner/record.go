package nccltuner

import (
	"fmt"
	"sync/atomic"
)

// maxEpochCalls bounds what a record may say: a plan that takes longer to come into force would never be seen.
const maxEpochCalls = 1 << 20

// maxMultiprocessors bounds what a rank may say.
const maxMultiprocessors = 1 << 16

// maxNICs bounds what a rank may say: features of learners are made of it.
const maxNICs = 64

// transportName is a rank's word; what a newer rank knows beside these is not known here.
func transportName(word uint32) string {
	switch word {
	case TransportNvlink:
		return "nvlink"
	case TransportPcie:
		return "pcie"
	case TransportSocket:
		return "socket"
	case TransportRdma:
		return "rdma"
	}
	return ""
}

// GPU is what a rank says of its own; zero: not known.
type GPU struct {
	UUID            [16]byte
	Multiprocessors int // as far as the rank's process may use them
}

// Known reports whether it can be told from others.
func (g GPU) Known() bool { return g.UUID != [16]byte{} }

// positionLeft is dyn_rank.position of a rank that has left.
const positionLeft = ^uint64(0)

// RecordInfo is what the creator of a record wrote once.
type RecordInfo struct {
	CommID      uint64
	NRanks      int // Invariant: 1 to MaxRanks
	NNodes      int // Invariant: 1 to NRanks
	EpochCalls  int // getCollInfo calls of one epoch; Invariant: > 0
	MaxChannels int // 0: not known
}

// Record is the shared file of one communicator, open for reading and for the daemon's heartbeat. Its plans are written by
// a Publisher.
type Record struct {
	info   RecordInfo
	memory *mapping
	abi    *ABIRecord
	ranks  []ABIRank
	heard  []markWords // what the ranks' marks were when NewMarks last looked
}

// OpenRecord maps the record of a communicator after checking everything that can be checked.
func (d *Dir) OpenRecord(commID uint64) (*Record, error) {
	m, err := mapFile(d.fd, recordName(commID), d.uid, recordSize+MaxRanks*rankSize)
	if err != nil {
		return nil, err
	}
	r, err := newRecord(m, commID)
	if err != nil {
		return nil, refused(d.fd, m, err)
	}
	return r, nil
}

func newRecord(m *mapping, commID uint64) (*Record, error) {
	r := &Record{memory: m}
	var checkErr error
	if err := m.guard(func() { r.info, checkErr = checkRecord(m, commID) }); err != nil {
		return nil, err
	}
	if checkErr != nil {
		return nil, checkErr
	}
	r.abi, r.ranks = m.record(r.info.NRanks)
	return r, nil
}

// checkHeader checks what records and rings have in common.
func checkHeader(m *mapping, magic uint64) error {
	if int64(len(m.data)) < headerSize {
		return fmt.Errorf("%d bytes: %w", len(m.data), ErrTorn)
	}
	h := m.header()
	switch got := m.magic(); {
	case got == 0:
		return ErrNotReady
	case got != magic:
		return fmt.Errorf("magic %#x, want %#x: %w", got, magic, ErrGarbage)
	case h.Version != ABIVersion:
		return &VersionError{h.Version}
	case Elsewhere(h.PidNamespace):
		return ErrElsewhere
	case h.SizeBytes > uint64(len(m.data)):
		return fmt.Errorf("%d bytes of %d: %w", len(m.data), h.SizeBytes, ErrTorn)
	case h.SizeBytes < uint64(len(m.data)):
		return fmt.Errorf("%d bytes, it says %d: %w", len(m.data), h.SizeBytes, ErrGarbage)
	}
	return nil
}

// checkRecord reads every word once: what was checked is what is used, whatever a rank writes meanwhile.
func checkRecord(m *mapping, commID uint64) (info RecordInfo, err error) {
	if err := checkHeader(m, RecordMagic); err != nil {
		return info, err
	}
	if int64(len(m.data)) < recordSize {
		return info, fmt.Errorf("%d bytes, a record has at least %d: %w", len(m.data), recordSize, ErrTorn)
	}
	abi := m.fixedRecord()
	id, nRanks, nNodes, epochCalls, maxChannels := abi.CommID, abi.NRanks, abi.NNodes, abi.EpochCalls, abi.MaxChannels
	switch {
	case id != commID:
		return info, fmt.Errorf("communicator %016x under the name of %016x: %w", id, commID, ErrGarbage)
	case nRanks == 0 || nRanks > MaxRanks:
		return info, fmt.Errorf("%d ranks, want 1 to %d: %w", nRanks, MaxRanks, ErrGarbage)
	case int64(len(m.data)) != recordSize+int64(nRanks)*rankSize:
		return info, fmt.Errorf("%d bytes, %d ranks need %d: %w", len(m.data), nRanks, recordSize+int64(nRanks)*rankSize, ErrGarbage)
	case nNodes == 0 || nNodes > nRanks:
		return info, fmt.Errorf("%d nodes of %d ranks: %w", nNodes, nRanks, ErrGarbage)
	case epochCalls == 0 || epochCalls > maxEpochCalls:
		return info, fmt.Errorf("epochs of %d calls, want 1 to %d: %w", epochCalls, maxEpochCalls, ErrGarbage)
	case maxChannels > 255:
		return info, fmt.Errorf("%d channels, actions hold at most 255: %w", maxChannels, ErrGarbage)
	}
	return RecordInfo{id, int(nRanks), int(nNodes), int(epochCalls), int(maxChannels)}, nil
}

// Info is what the creator wrote.
func (r *Record) Info() RecordInfo { return r.info }

// Name is the file's name in the directory.
func (r *Record) Name() string { return r.memory.name }

// RankView is one registered rank.
type RankView struct {
	Process     Process
	Rank        int    // in the communicator, -1: not known
	Epoch       uint64 // last one entered; 0 when Left
	Slot        int    // plan buffer + 1 in force, 0: NCCL's defaults
	Version     uint64 // of the plan in force, 0: NCCL's defaults
	Agreed      uint64 // likewise, where ranks on several hosts agree on it
	Left        bool
	Veto        bool       // the user set NCCL_ALGO or NCCL_PROTO there
	NoProfiler  bool       // stored choices only, no exploration
	PlanUnfit   bool       // the plan in force failed the rank's check: NCCL's defaults run in its place
	NoTimes     bool       // likewise: its calls are not timed
	EventTimed  bool       // its calls are timed by CUDA events
	NoExplore   bool       // the user wants stored choices only
	Fixed       bool       // the user wants NCCL's own choice for collectives that add up
	MaxCTAs     int        // that its program lets a kernel of NCCL's have; 0: as many as there are
	DeviceLL    bool       // NCCL may run a device kernel where LL is chosen, if it is new enough
	SharesLL    bool       // with DeviceLL: where ranks share a process, too
	Kernels     bool       // it can run our own kernels, as all ranks could when it said so
	Windows     bool       // with them: calls on registered memory count as such
	Names       bool       // with windows: NCCL can be told by name what to run there
	GIN         [2]GINView // by each backend, in the order in which ranks make them
	GPU         GPU        // that the communicator has there
	Transport   string     // what connects the communicator's ranks: as state.Shape has it, "" when not known
	NICs        int        // a node; 0: none or not known
	Run         uint64     // the `dynamiccld run` that started the process, 0: none
	NCCLVersion int        // NCCL_VERSION code, 0: not known
	Calls       uint64
	Ignored     uint64 // planned actions that NCCL's cost table marked -1 there

	AloneGathers bool // its NCCL asks about an AllGather for nothing else; where it may ranks answer no number of channels there
}

// RecordView is a record at one moment, or nearly: every word is read atomically, the words one after the other.
type RecordView struct {
	Joined        int // registered ranks; plans apply once it equals HostRanks
	Veto          bool
	NewestVersion uint64 // 0: nothing published
	Epoch         uint64 // last decided
	Ranks         []RankView

	Hosts     uint32   // Hosts*
	HostRanks int      // that register here: all, unless Several. Invariant then: 1 to NRanks - 1, and Joined
	Proposed  uint64   // version of the newest plan that rank 0 has proposed to all hosts
	Refusal   uint32   // why the last of them was not taken, Refused*,
	Refuser   int      // and by which rank; -1: not known
	Others    RankView // Several, and Leads: what all ranks on other hosts say together. Flags and NCCL's version alone

	OthersTold bool // and they have begun to
}

// View reads the record into v, whose slice is reused. With an error v is as it was, or nearly: some of its ranks may be read anew.
func (r *Record) View(v *RecordView) error {
	next := RecordView{Ranks: v.Ranks[:0]}
	var bad error
	if err := r.memory.guard(func() { bad = r.view(&next) }); err != nil {
		return err
	}
	if bad == nil {
		*v = next
	}
	return bad
}

func (r *Record) view(v *RecordView) error {
	if err := r.hosts(v); err != nil {
		return err
	}
	// joined before ranks: the words of a rank are written before it is counted.
	joined := atomic.LoadUint32(&r.abi.Joined)
	if joined > uint32(r.info.NRanks) {
		return fmt.Errorf("%s: %d of %d ranks joined: %w", r.memory.name, joined, r.info.NRanks, ErrGarbage)
	}
	newest := atomic.LoadUint64(&r.abi.Newest)
	v.Joined, v.Veto = int(joined), atomic.LoadUint32(&r.abi.Veto) != 0
	v.NewestVersion, v.Epoch = newest>>8, atomic.LoadUint64(&r.abi.Frontier)>>8
	for i := range r.ranks[:joined] {
		abi := &r.ranks[i]
		position := atomic.LoadUint64(&abi.Position)
		rank := RankView{
			Process:     Process{abi.Pid, abi.StartTime},
			Rank:        int(abi.Rank),
			Left:        position == positionLeft,
			Agreed:      atomic.LoadUint64(&abi.Agreed),
			Kernels:     atomic.LoadUint32(&abi.MemoryState) == MemoryBound,
			GPU:         gpuOf(abi),
			GIN:         ginViews(abi),
			Transport:   transportName(abi.Transport),
			NICs:        int(min(abi.Nics, maxNICs)),
			Run:         abi.Run,
			NCCLVersion: int(abi.NcclVersion),
			Calls:       atomic.LoadUint64(&abi.Calls),
			Ignored:     atomic.LoadUint64(&abi.Ignored),
		}
		rank.setFlags(atomic.LoadUint32(&abi.Flags))
		if !rank.Left {
			rank.Epoch, rank.Slot = position>>8, int(position&255)
		}
		if rank.Slot > NumPlans || !rank.Process.valid() || rank.Rank < -1 {
			return fmt.Errorf("%s: registration %d names %s, rank %d and plan buffer %d: %w",
				r.memory.name, i, rank.Process, rank.Rank, rank.Slot, ErrGarbage)
		}
		if rank.Slot != 0 {
			rank.Version = atomic.LoadUint64(&r.abi.Plans[rank.Slot-1].Version)
		}
		v.Ranks = append(v.Ranks, rank)
	}
	if v.Several() {
		return r.met(v)
	}
	return nil
}

func (k *RankView) setFlags(flags uint32) {
	k.Veto = flags&RankVeto != 0
	k.NoProfiler = flags&RankNoProfiler != 0
	k.NoTimes = flags&RankNoTimes != 0
	k.EventTimed = flags&RankEventTimed != 0
	k.PlanUnfit = flags&RankPlanUnfit != 0
	k.NoExplore = flags&RankNoExplore != 0
	k.Fixed = flags&RankFixedNumerics != 0
	k.AloneGathers = flags&RankAloneGathers != 0
	k.DeviceLL = flags&RankDeviceLl != 0
	k.SharesLL = flags&RankSharesLl != 0
	k.Windows = flags&RankWindows != 0
	k.Names = flags&RankNames != 0
	k.MaxCTAs = 0
	if ctas := flags >> RankCtasShift; ctas < 255 {
		k.MaxCTAs = int(ctas)
	}
}

// gpuOf is read where it is written: before the state of the rank's memory is told.
func gpuOf(abi *ABIRank) GPU {
	if atomic.LoadUint32(&abi.MemoryState) == MemoryNone {
		return GPU{}
	}
	return GPU{UUID: abi.Gpu, Multiprocessors: int(min(abi.Multiprocessors, maxMultiprocessors))}
}

// Complete says that every rank has registered, here or, where several hosts have met, on its host.
func (r *Record) Complete(v *RecordView) bool { return v.HostRanks > 0 && v.Joined == v.HostRanks }

// Gone counts ranks that run no more, by having left or by their process having ended. alive is Process.Alive or a cache
// of it; when it does not know, the rank counts as running.
func (v *RecordView) Gone(alive func(Process) (bool, error)) (left, dead int, err error) {
	for i := range v.Ranks {
		if v.Ranks[i].Left {
			left++
			continue
		}
		living, aliveErr := alive(v.Ranks[i].Process)
		if aliveErr != nil {
			err = aliveErr
		} else if !living {
			dead++
		}
	}
	return left, dead, err
}

// Beat tells the ranks that a daemon serves this record. It never influences a choice.
func (r *Record) Beat() error {
	return r.memory.guard(func() { atomic.AddUint64(&r.abi.Header.Heartbeat, 1) })
}

// Answer tells the ranks what the plans published so far know of: AnsweredRanks or AnsweredKernels. New communicators wait for that.
func (r *Record) Answer(what uint32) error {
	return r.memory.guard(func() { atomic.StoreUint32(&r.abi.Answered, what) })
}

// Close unmaps the record. The file stays: it is the ranks'.
func (r *Record) Close() error { return r.memory.close() }
