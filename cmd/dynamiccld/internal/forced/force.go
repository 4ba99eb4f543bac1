package forced

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/machine"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// Outcomes of a point that was not measured.
const (
	Overruled = "overruled" // NCCL ran something else
	Unseen    = "unseen"    // what ran is not known
	Wrong     = "wrong"     // wrong elements
	Hung      = "hung"
	Failed    = "failed"
)

// Fault is why a choice could not be measured.
type Fault struct {
	Outcome string
	Err     error
}

func (e *Fault) Error() string { return e.Err.Error() }
func (e *Fault) Unwrap() error { return e.Err }

// Ends says that the ranks are of no more use.
func (e *Fault) Ends() bool { return e.Outcome != Overruled && e.Outcome != Unseen }

// NewFault makes one as fmt.Errorf makes errors.
func NewFault(outcome, format string, args ...any) error {
	return &Fault{outcome, fmt.Errorf(format, args...)}
}

// outcomeOf sorts what the ranks answered. An error that is no point's fault stays as it is.
func outcomeOf(ctx context.Context, err error) error {
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.Is(err, workers.ErrHung):
		return &Fault{Hung, err}
	case errors.Is(err, workers.ErrDied), errors.Is(err, workers.ErrRefused):
		return &Fault{Failed, err}
	}
	return err
}

// Choice is one in force.
type Choice struct {
	CallUs  float64        // of a call without a graph, on the slowest rank
	Ran     actions.Action // on all ranks; Default: not known by name
	Asked   bool           // NCCL asks a tuner about this collective
	Device  bool           // NCCL's device kernel for LL ran
	Version uint32         // of the plan, low 32 bits; 0: none was needed
}

// Calls that are made to bring a plan into force, in epochs, and how often.
const (
	forceEpochs = 2 // the rest of the running epoch, then a whole one
	forceTries  = 3
	probeCalls  = 4 // whose time is an estimate: the ones before have made connections
)

// seenWithin bounds the wait for samples: a Coll event ends when NCCL has enqueued the call.
const seenWithin = 300 * time.Millisecond

// ActualBytes is what NCCL sees of nccl-tests' size: a rank's share is rounded down to 16 bytes.
func ActualBytes(collective string, bytes uint64, ranks int) uint64 {
	if !Shared(collective) {
		return bytes
	}
	return bytes / uint64(ranks) / 16 * 16 * uint64(ranks)
}

// Shared says that the size is divided among the ranks.
func Shared(collective string) bool {
	collective = called(collective)
	return collective == "AllGather" || collective == "ReduceScatter" || collective == actions.AllToAll.String()
}

// called is the collective that ranks call.
func called(collective string) string {
	if c, err := actions.ParseCollective(collective); err == nil {
		return c.Plain().String()
	}
	return collective
}

// Bucket of a call; false where it has none.
func (s *Session) Bucket(collective string, bytes uint64) (state.Bucket, bool) {
	return BucketOf(collective, bytes, s.o.Ranks)
}

// BucketOf is the bucket of a call of so many ranks; false where it has none.
func BucketOf(collective string, bytes uint64, ranks int) (state.Bucket, bool) {
	c, err := actions.ParseCollective(collective)
	if err != nil {
		return state.Bucket{}, false
	}
	return state.BucketOf(c, ActualBytes(collective, bytes, ranks))
}

// Entry is what the calls of a bucket shall run.
type Entry struct {
	Bucket state.Bucket
	Action actions.Action
}

// publish makes a plan of these entries and nothing else; the calls of all other buckets run NCCL's default. 0: ranks need
// all plan buffers; calls free one.
func (s *Session) publish(entries ...Entry) (uint64, error) {
	spec := nccltuner.PlanSpec{SampleEvery: 1}
	for _, e := range entries {
		if e.Action != actions.Default {
			s.lastID++
			spec.Entries = append(spec.Entries, nccltuner.EntrySpec{Bucket: e.Bucket, ID: s.lastID, Base: e.Action.Word()})
		}
	}
	version, err := s.publisher.Publish(&spec)
	if errors.Is(err, nccltuner.ErrNoFreeBuffer) {
		return 0, nil
	}
	return version, err
}

// Call makes calls on all ranks, at most once hanging.
func (s *Session) Call(ctx context.Context, collective string, bytes uint64, calls int) (us float64, err error) {
	s.idle() // short answers leave no time for it
	called, err := s.group.Call(ctx, s.o.Timeout, called(collective), bytes, calls)
	if err != nil {
		return 0, outcomeOf(ctx, err)
	}
	for rank, c := range called {
		us = max(us, c.Us)
		if c.Wrong > 0 {
			return 0, NewFault(Wrong, "rank %d: %d elements of the result are wrong", rank, c.Wrong)
		}
	}
	return us, s.look()
}

// look reads the record.
func (s *Session) look() error {
	if err := errors.Join(s.trouble, s.record.View(&s.view)); err != nil {
		return err
	}
	return s.check()
}

// Force brings a choice into force on all ranks, looks that it is, and asks what ran.
func (s *Session) Force(ctx context.Context, collective string, bytes uint64, a actions.Action) (f Choice, err error) {
	if err := s.Want(WantRan); err != nil {
		return f, err
	}
	b, tuned := s.Bucket(collective, bytes)
	epoch := s.record.Info().EpochCalls * forceEpochs
	var version uint64
	for try := 0; ; try++ {
		if version == 0 {
			if version, err = s.publish(Entry{b, a}); err != nil {
				return f, err
			}
		}
		s.Forget()
		if _, err := s.Call(ctx, collective, bytes, epoch); err != nil {
			return f, err
		}
		if version != 0 && s.inForce(version) {
			break
		}
		if try+1 == forceTries {
			if a == actions.Default { // NCCL never asked: what it runs is its own choice whatever the plan
				f.CallUs, err = s.Call(ctx, collective, bytes, probeCalls)
				return f, err
			}
			return f, NewFault(Overruled, "the choice did not come into force: NCCL did not ask the tuner")
		}
	}
	f.Version = uint32(version)
	if f.CallUs, err = s.Call(ctx, collective, bytes, probeCalls); err != nil || !tuned {
		return f, err
	}
	f.Asked = true
	return f, s.whatRan(ctx, b, a, &f)
}

func (s *Session) inForce(version uint64) bool {
	for _, r := range s.view.Ranks {
		if r.Version != version || r.Left {
			return false
		}
	}
	return true
}

// whatRan waits for a sample of every rank and compares it with the choice.
func (s *Session) whatRan(ctx context.Context, b state.Bucket, a actions.Action, f *Choice) error {
	all, err := s.told(ctx, f.Version, []Entry{{b, a}})
	if err != nil {
		return err
	}
	return s.judge(all[b], a, f)
}

// told waits for what every rank says of calls of these buckets under a plan, and gives it by bucket and rank.
func (s *Session) told(ctx context.Context, version uint32, entries []Entry) (map[state.Bucket]map[int32]nccltuner.Sample, error) {
	all := make(map[state.Bucket]map[int32]nccltuner.Sample, len(entries))
	for _, e := range entries {
		all[e.Bucket] = map[int32]nccltuner.Sample{}
	}
	missing := s.o.Ranks * len(all)
	for deadline := time.Now().Add(seenWithin); ; time.Sleep(time.Millisecond) {
		s.Drain()
		for _, x := range s.Seen {
			of, asked := all[x.Bucket]
			if _, known := of[x.Rank]; asked && !known && x.PlanVersion == version && !x.Captured {
				of[x.Rank] = x
				missing--
			}
		}
		s.Seen = s.Seen[:0]
		if missing == 0 || time.Now().After(deadline) {
			return all, s.trouble
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
}

// judge holds what all ranks told of a bucket against its choice.
func (s *Session) judge(told map[int32]nccltuner.Sample, a actions.Action, f *Choice) error {
	if len(told) < s.o.Ranks && a != actions.Default {
		return NewFault(Unseen, "%d of %d ranks did not tell what ran", s.o.Ranks-len(told), s.o.Ranks)
	}
	for rank := range int32(s.o.Ranks) {
		if err := s.compare(rank, told[rank], a, f); err != nil {
			return err
		}
	}
	f.Ran = told[0].Ran
	return nil
}

// compare holds what a rank ran against the choice.
func (s *Session) compare(rank int32, x nccltuner.Sample, a actions.Action, f *Choice) error {
	ran := x.Ran
	switch {
	case a == actions.Default:
		return nil
	case x.Action != a && x.Bucket.Collective.Registered() && !a.Ours():
		return NewFault(Overruled, "rank %d did not run it: NCCL refuses the name on this call", rank)
	case x.Action != a && a.Ours():
		return NewFault(Overruled, "rank %d did not choose it: it cannot run our kernel on this call", rank)
	case x.Action != a:
		return NewFault(Overruled, "rank %d did not choose it: NCCL marks it -1 in this call", rank)
	case ran == actions.Default:
		if a.Path != actions.PathCollective && a.Path != actions.PathSymmetric {
			return NewFault(Overruled, "rank %d ran a kernel that is none of ours", rank)
		}
		if r := s.view.Ranks[0]; r.DeviceLL && r.NCCLVersion >= machine.DeviceVersion && a.Protocol == actions.LL {
			f.Device = true
			return nil
		}
		return NewFault(Overruled, "rank %d ran a kernel that has no name here", rank)
	case ran.Kind() != a.Kind():
		return NewFault(Overruled, "rank %d ran %s", rank, ran)
	case s.o.Exact && a.Channels != 0 && ran.Channels != a.Channels:
		return NewFault(Overruled, "rank %d ran %s", rank, ran)
	}
	return nil
}

// Allowed gives NCCL's marks of a bucket, the same on all ranks; 0: none, or ranks differ.
func (s *Session) Allowed(collective string, bytes uint64) (uint32, error) {
	b, ok := s.Bucket(collective, bytes)
	if !ok {
		return 0, nil
	}
	if err := s.record.Marks(&s.marks); err != nil {
		return 0, err
	}
	m := s.marks.Of(b)
	if m.Seen != s.o.Ranks || m.Differ || m.Unasked || bits.OnesCount32(m.Set) == 0 {
		return 0, nil
	}
	return m.Set, nil
}
