package forced

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/machine"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// How long what is no point may take.
const (
	initWithin = 3 * time.Minute // CUDA's and NCCL's start on a large machine, twice over
	joinWithin = 10 * time.Second
	loadWithin = 30 * time.Second
)

// plainBroadcasts has ranks answer numbers of channels about an AllGather (nccltuner/plugin/everywhere.h): no broadcasts are made here.
const plainBroadcasts = "NCCL_ALLGATHERV_ENABLE=0"

// Profiler events, src/include/plugin/nccl_profiler.h. Coll alone makes samples that say what ran and costs nothing that
// could be measured. Kernel events never go on while graphs are captured (decision 9).
const (
	WantRan   = 1 << 1             // ncclProfileColl
	WantTimes = 1<<1 | 1<<3 | 1<<6 // and ProxyOp, KernelCh, or CUDA events in their place
)

// leastBytes is the smallest buffer that ranks take.
const leastBytes = 4096

// renewEpochs is when a communicator without a heartbeat is replaced: ranks stop sampling after 4096 epochs without
// (DYN_HEARTBEAT_EPOCHS), and then nobody would tell what ran. What is left is enough for the points of a bucket.
const renewEpochs = 3000

// Config says which ranks and how they are measured.
type Config struct {
	Worker   string // dynamiccl-worker
	NCCL     string // libnccl.so.2; "": the loader's
	Ranks    int
	Nodes    int
	MaxBytes uint64 // of any call
	Calls    string // workers.Graph or workers.Stream
	Times    bool   // calls will be timed; wants stream calls, and an environment with what times them
	// Beat keeps the communicator from wearing out where graphs are captured. It takes no lock, and no more than Coll events
	// are wanted, so no kernel event can get into a graph.
	Beat    bool
	Exact   bool // another number of channels than asked for is another choice
	Timeout time.Duration
	Environ []string // of the ranks, plugin included, without the directory
	// Registered: the ranks' buffers are registered, and collectives go by their names on such memory.
	Registered bool
}

// Session is one communicator: its ranks and the shared memory in which they are told what to do. It belongs to one
// goroutine.
type Session struct {
	o         Config
	folder    string
	dir       *nccltuner.Dir
	scanner   *nccltuner.Scanner
	record    *nccltuner.Record
	publisher *nccltuner.Publisher
	rings     []*nccltuner.Ring
	group     *workers.Group
	ready     []workers.Ready
	view      nccltuner.RecordView
	marks     nccltuner.MarkTable
	batch     [256]nccltuner.Sample
	Seen      []nccltuner.Sample // what the rings gave since the last Forget
	lastID    uint32             // of a plan entry
	trouble   error              // of shared memory, met where no error could be returned
}

// ErrSetup is an error of the machine and not of a point: measuring on makes no sense.
var ErrSetup = errors.New("setup")

// Open starts the ranks in a folder of their own and waits until all have joined.
func Open(ctx context.Context, o Config, folder string) (*Session, error) {
	s := &Session{o: o, folder: folder}
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.Kill())
	}
	return s, nil
}

func (s *Session) start(ctx context.Context) (err error) {
	o, dir := s.o, filepath.Join(s.folder, "run")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if s.dir, err = nccltuner.OpenDir(dir); err != nil {
		return err
	}
	s.scanner = nccltuner.NewScanner(s.dir)
	if o.Times {
		// NCCL 2.32 gives kernel times only to communicators that were made while a daemon lived.
		if err := s.dir.Lock(); err != nil {
			return err
		}
	}
	environ := append(slices.Clone(o.Environ), nccltuner.DirVariable+"="+dir, nccltuner.ForcedVariable+"=1", plainBroadcasts)
	spec := workers.Spec{Program: o.Worker, Ranks: o.Ranks, Nodes: o.Nodes, NCCL: o.NCCL, MaxBytes: max(leastBytes, o.MaxBytes), Logs: s.folder,
		Registered: o.Registered, Environ: environ, Idle: s.idle}
	if s.group, err = workers.Start(spec); err != nil {
		return err
	}
	if s.ready, err = s.group.Init(ctx, initWithin); err != nil {
		return err
	}
	return s.join(ctx)
}

// Ready is what the ranks said of themselves.
func (s *Session) Ready() []workers.Ready { return s.ready }

// View is what the record said when it was last read.
func (s *Session) View() *nccltuner.RecordView { return &s.view }

// Topology of the communicator, as the daemon of a program would know it.
func (s *Session) Topology() state.Topology { return machine.Topology(s.record.Info(), &s.view) }

// MaxChannels is the most that NCCL runs on this communicator; 0: not known.
func (s *Session) MaxChannels() int { return s.record.Info().MaxChannels }

// Load switches what the GPUs do beside.
func (s *Session) Load(ctx context.Context, kind string) error {
	return s.group.Load(ctx, loadWithin, kind)
}

// join waits for the record of all ranks and their rings.
func (s *Session) join(ctx context.Context) error {
	var changes nccltuner.Changes
	for deadline := time.Now().Add(joinWithin); ; {
		if err := s.scanner.Scan(&changes); err != nil {
			return err
		}
		for _, r := range changes.Records {
			s.record = r
		}
		s.rings = append(s.rings, changes.Rings...)
		if s.record != nil {
			if err := s.record.View(&s.view); err != nil {
				return err
			}
			if s.record.Complete(&s.view) && (len(s.rings) == s.o.Ranks || s.check() != nil) {
				break
			}
		}
		if time.Now().After(deadline) {
			return s.notJoined(changes.Rejected)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := s.check(); err != nil {
		return err
	}
	var err error
	if s.publisher, err = nccltuner.NewPublisher(s.record); err != nil {
		return err
	}
	return s.Want(WantRan)
}

func (s *Session) notJoined(rejected []error) error {
	if len(rejected) > 0 {
		return fmt.Errorf("the ranks' files cannot be used: %w: %w", errors.Join(rejected...), ErrSetup)
	}
	if s.record == nil {
		return fmt.Errorf("no rank has joined: this NCCL did not load the tuner plugin; run again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING,INIT "+
			"and look into %s/rank0.log, or ask `dynamiccld doctor`: %w", s.folder, ErrSetup)
	}
	return fmt.Errorf("%d of %d ranks have joined, and %d tell what they run: see %s/rank*.log: %w",
		s.view.Joined, s.o.Ranks, len(s.rings), s.folder, ErrSetup)
}

// check says why ranks that have joined cannot be told what to run.
func (s *Session) check() error {
	for _, r := range s.view.Ranks {
		switch {
		case r.Veto:
			return fmt.Errorf("NCCL_ALGO or NCCL_PROTO is set on rank %d, in the environment or in NCCL's files; unset it: %w", r.Rank, ErrSetup)
		case r.NoProfiler:
			return fmt.Errorf("rank %d has the tuner plugin and not its profiler half, so nobody tells what runs; unset NCCL_PROFILER_PLUGIN, "+
				"or name yours in DYNAMICCL_CHAIN_PROFILER: %w", r.Rank, ErrSetup)
		case s.o.Times && r.NoTimes:
			return fmt.Errorf("rank %d times no calls, so there are no samples; `make plugin` builds libdynamiccl.so beside the plugin: %w", r.Rank, ErrSetup)
		case r.PlanUnfit:
			return fmt.Errorf("rank %d refuses the plan as damaged; use plugin and dynamiccld of one build: %w", r.Rank, ErrSetup)
		}
	}
	return nil
}

// Want says which profiler events the ranks shall turn into samples.
func (s *Session) Want(mask uint32) error {
	for _, r := range s.rings {
		if err := r.SetWantMask(mask); err != nil {
			return err
		}
	}
	return nil
}

// beats says that ranks get heartbeats.
func (s *Session) beats() bool { return s.o.Beat || s.o.Calls == workers.Stream }

// idle runs while ranks are at work.
func (s *Session) idle() {
	s.Drain()
	if !s.beats() || s.record == nil {
		return
	}
	s.report(s.record.Beat())
	for _, r := range s.rings {
		s.report(r.Beat())
	}
}

// Drain takes in what the rings hold of calls. What graphs took is measured here by CUDA events, and what puts take by nobody.
func (s *Session) Drain() {
	for _, r := range s.rings {
		for {
			n, err := r.Drain(s.batch[:])
			for i := range s.batch[:n] {
				if !s.batch[i].Replayed && !s.batch[i].Trip {
					s.Seen = append(s.Seen, s.batch[i])
				}
			}
			s.report(err)
			if n < len(s.batch) || err != nil {
				break
			}
		}
	}
}

// Forget drops what the rings have told so far.
func (s *Session) Forget() {
	s.Drain()
	s.Seen = s.Seen[:0]
}

func (s *Session) report(err error) {
	if err != nil && s.trouble == nil {
		s.trouble = err
	}
}

// Worn says that the communicator should be replaced before the next bucket.
func (s *Session) Worn() bool {
	return !s.beats() && s.view.Epoch > renewEpochs
}

// Close lets the ranks end.
func (s *Session) Close(ctx context.Context) error {
	var err error
	if s.group != nil {
		err = s.group.Close(ctx)
	}
	return errors.Join(err, s.release())
}

// Kill ends the ranks: those of a point that hangs do not listen.
func (s *Session) Kill() error {
	var err error
	if s.group != nil {
		err = s.group.Kill()
	}
	return errors.Join(err, s.release())
}

func (s *Session) release() error {
	var err error
	if s.scanner != nil {
		err = s.scanner.Close()
		s.scanner = nil
	}
	if s.dir != nil {
		err = errors.Join(err, s.dir.Close(), os.RemoveAll(s.dir.Path())) // megabytes a rank, of memory
		s.dir = nil
	}
	return err
}
