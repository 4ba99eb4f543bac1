package daemon

import (
	"errors"
	"fmt"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/machine"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// comm is the daemon's side of one communicator: its record, and what of it the core has been told.
type comm struct {
	record    *nccltuner.Record
	publisher *nccltuner.Publisher
	view      nccltuner.RecordView
	marks     nccltuner.MarkTable
	active    bool // the core knows it
	why       string
	pending   *nccltuner.PlanSpec // waits for a free plan buffer
	version   uint64              // last published
	readAt    uint64              // calls of all ranks when the record was last read for marks
	broken    bool
	exploring bool // its newest plan has trials
	opened    bool // the core knows that ranks can run our kernels
	answered  uint32
	nRanks    int
	inGraphs  bool // CUDA graphs have kernels of ours
	hosts     hosts
	presence  presence
	told      tuner.Outstanding // what the core has heard
	rings     ringed
}

func newComm(record *nccltuner.Record) (*comm, error) {
	publisher, err := nccltuner.NewPublisher(record)
	if err != nil {
		return nil, err
	}
	return &comm{record: record, publisher: publisher, why: "ranks are joining", nRanks: record.Info().NRanks}, nil
}

func (c *comm) id() tuner.CommID { return tuner.CommID(c.record.Info().CommID) }

// topology gives what choices depend on, once all ranks have joined.
func (c *comm) topology() state.Topology { return machine.Topology(c.record.Info(), &c.view) }

func (c *comm) shape() state.Shape { return c.topology().Shape }

// state of joining: ready to be tuned, or why not.
func (c *comm) ready() (bool, string) {
	info := c.record.Info()
	switch {
	case c.view.Veto:
		return false, "NCCL_ALGO or NCCL_PROTO is set on a rank: the user's choice is respected"
	case c.view.Several():
		return c.readyAcross()
	case c.record.Complete(&c.view):
		return true, ""
	case c.view.Hosts == nccltuner.HostsApart || info.NNodes > 1: // ranks that come late, of nodes pretended here, look like those of other hosts
		return false, fmt.Sprintf("%d of %d ranks have joined on this host: it is tuned once the others have, here, or on hosts that reach it and under `dynamiccld run`", c.view.Joined, info.NRanks)
	}
	return false, fmt.Sprintf("%d of %d ranks have joined: it is tuned once the others have; those in other containers need the same DYNAMICCL_DIR and one PID namespace (--pid=host)", c.view.Joined, info.NRanks)
}

// ncclVersion is that of the ranks, 0 when they differ or do not know.
func (c *comm) ncclVersion() int {
	version := machine.NCCLVersion(c.view.Ranks)
	if c.view.Any(func(r *nccltuner.RankView) bool { return r.NCCLVersion != version }) {
		return 0
	}
	return version
}

// machine is what choices are stored under.
func (c *comm) machine(name string) string {
	return machine.Stored(name, c.view.Ranks, c.record.Info().NNodes)
}

// beside is under what else something is stored for it (machine.Beside).
func (c *comm) beside(name string) string {
	return machine.Beside(name, c.view.Ranks, c.record.Info().NNodes)
}

// unfit says that ranks refuse the plan in force.
func (c *comm) unfit() bool {
	for _, r := range c.view.Ranks {
		if r.PlanUnfit {
			return true
		}
	}
	return false
}

// measured says that every rank has our profiler and times its calls.
func (c *comm) measured() bool {
	return !c.view.Any(func(r *nccltuner.RankView) bool { return r.NoProfiler || r.NoTimes })
}

// eventTimed says that CUDA events time the calls of every rank.
func (c *comm) eventTimed() bool {
	return !c.view.Any(func(r *nccltuner.RankView) bool { return !r.EventTimed })
}

// kernels says that every rank can run our own kernels, which are for one host.
func (c *comm) kernels() bool {
	return !c.view.Several() && !slices.ContainsFunc(c.view.Ranks, func(r nccltuner.RankView) bool { return !r.Kernels })
}

// noTimes says that a rank's calls are not timed (nccltuner/plugin/capture.c).
func (c *comm) noTimes() bool {
	return c.view.Any(func(r *nccltuner.RankView) bool { return r.NoTimes })
}

// whyNoTimes is said of such a communicator.
const whyNoTimes = "a rank's calls are not timed, for they do not go through libdynamiccl.so: stored choices only; either its LD_PRELOAD was lost " +
	"(to a script, Ray, ssh), which has to be as `dynamiccld env` prints it, or its process has several NCCLs, which `dynamiccld doctor` names while it runs"

// noExplore and fixedNumerics say what the user wants of the processes: one rank's word binds the communicator.
func (c *comm) noExplore() bool {
	return c.view.Any(func(r *nccltuner.RankView) bool { return r.NoExplore })
}

func (c *comm) fixedNumerics() bool {
	return c.view.Any(func(r *nccltuner.RankView) bool { return r.Fixed })
}

// ownGathers says that a rank cannot tell an AllGather from broadcasts of a group (nccltuner/plugin/everywhere.h): on one host ranks then give it
// NCCL's own number of channels, whatever a plan says, and on several such a rank promises no plan that has another.
func (c *comm) ownGathers() bool {
	return c.view.Any(func(r *nccltuner.RankView) bool { return !r.AloneGathers })
}

func (c *comm) calls() (calls, ignored uint64) {
	for _, r := range c.view.Ranks {
		calls += r.Calls
		ignored += r.Ignored
	}
	return calls, ignored
}

// newMarks calls tell for every bucket on which the ranks' word is complete and new.
func (c *comm) newMarks(tell func(tuner.Marks)) error {
	if moved, err := c.record.NewMarks(); !moved || err != nil {
		return err
	}
	before := c.marks
	if err := c.record.Marks(&c.marks); err != nil {
		return err
	}
	n := c.view.Reporters()
	for coll := range c.marks {
		for log2 := range c.marks[coll] {
			m := c.marks[coll][log2]
			if m.Seen == n && m != before[coll][log2] {
				tell(tuner.Marks{Comm: c.id(), Set: tuner.MarkSet(m.Set), Differ: m.Differ,
					Bucket: state.Bucket{Collective: actions.Collective(coll), Log2Bytes: uint8(log2)}})
			}
		}
	}
	return nil
}

// publish hands the pending plan to the ranks, if a plan buffer is free. It reports whether a plan went out.
func (c *comm) publish() (bool, error) {
	if c.pending == nil {
		return false, nil
	}
	version, err := c.publisher.Publish(c.pending)
	if errors.Is(err, nccltuner.ErrNoFreeBuffer) {
		return false, nil // nobody is entering epochs; the newest wish is kept
	}
	if err != nil {
		return false, err
	}
	c.pending, c.version = nil, version
	return true, nil
}

// answer tells ranks that wait before their program has the communicator what the newest plan knows of.
func (c *comm) answer() error {
	what := uint32(nccltuner.AnsweredRanks)
	switch {
	case !c.active || c.pending != nil || c.version == 0:
		return nil
	case c.opened:
		what = nccltuner.AnsweredKernels
	}
	if what == c.answered {
		return nil
	}
	c.answered = what
	return c.record.Answer(what)
}

// closeEpochs is how long a plan has puts over GIN timed closely: 65,536 calls, whatever becomes of the daemon. One that lives says
// so anew before that (tuner/trip_close.go).
const closeEpochs = 4096

func planSpec(p *tuner.Plan) *nccltuner.PlanSpec {
	spec := &nccltuner.PlanSpec{SampleEvery: uint32(p.SampleEvery)}
	if p.Closely {
		spec.CloseEpochs = closeEpochs
	}
	if p.DefaultCalls {
		spec.Defaults |= nccltuner.PlanDefaultCalls
	}
	if p.DefaultGraphs {
		spec.Defaults |= nccltuner.PlanDefaultGraphs
	}
	for _, e := range p.Entries {
		entry := nccltuner.EntrySpec{Bucket: e.Bucket, ID: e.ID, Base: e.Base.Word(), Skip: uint32(e.Skip)}
		for _, t := range e.Trials {
			entry.Trials = append(entry.Trials, t.Word())
		}
		spec.Entries = append(spec.Entries, entry)
	}
	return spec
}
