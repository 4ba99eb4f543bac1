package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"dynamiccl/agents"
	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/machine"
	"dynamiccl/models"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/store"

	"golang.org/x/sys/unix"
)

// sayEvery is the time between two log lines of one diagnosis: a noisy fabric must not fill the log. All are counted,
// and all are logged at level debug.
const sayEvery = state.Ns(10 * time.Second)

// saidKept is how many texts are said once each, and sayAnewEvery the time before others, or these again, have their turn.
const (
	saidKept     = 1000
	sayAnewEvery = state.Ns(time.Hour)
)

// Daemon serves one directory.
type Daemon struct {
	cfg     config.Config
	version string
	log     *slog.Logger
	started time.Time
	wall    func() time.Time // the host's clock, which somebody may set

	sinceBoot   func() state.Ns // goes on while the host is suspended, where Go's monotonic clock stands still
	startedBoot state.Ns        // what it said at started
	suspended   state.Ns        // for so long the host was, since then

	busy    chan struct{} // full while the loop works, or another goroutine in its place; before Run and after it, too
	came    atomic.Bool   // a rank's file has appeared
	watched bool          // came will tell of each

	dir     *nccltuner.Dir
	scanner *nccltuner.Scanner
	changes nccltuner.Changes
	rings   []*nccltuner.Ring
	comms   map[tuner.CommID]*comm
	order   []tuner.CommID
	core    *tuner.Core
	memory  *store.Resilient
	mask    uint32            // profiler events wanted
	waiting map[place]waiting // of the latest look at all records

	following bool // some communicator was tuned by another host's daemon

	batch    [drainBatch]nccltuner.Sample
	event    tuner.Sample // the one sample event, so that the hot path does not allocate
	replay   tuner.Replay // likewise
	trip     tuner.Trip   // likewise
	batchNow state.Ns     // clock of the batch under way: reading it for every sample would cost as much as the sample

	scanned, swept, readRecords, beaten state.Ns
	cameNs                              state.Ns // when a process or communicator was found last; 0: none

	trace         *trace                               // nil: none
	captured      map[tuner.CommID]map[captured]uint64 // calls of all ranks that went into CUDA graphs
	runOf         map[nccltuner.Process]uint64         // of processes whose communicator is gone: the `dynamiccld run` that is theirs
	traffic       []traffic                            // of processes that are gone, the oldest run first; at most departedKept
	left          []departed                           // communicators that are gone, oldest first; at most departedKept
	strays        int                                  // those that are gone and belonged to no run
	findings      kept[tuner.Finding]
	alarms        kept[tuner.Alarmed]
	findingCounts map[string]uint64
	lastSaid      map[agents.Diagnosis]state.Ns
	said          map[string]bool
	saidNs        state.Ns // when said was begun anew
	traceError    string
	lost          error // the directory may have another daemon: nothing is published any more

	sampleCount, publications                                     uint64
	goneDropped, goneUnjoined, goneUntold, goneCalls, goneIgnored uint64 // of rings and communicators that have left
}

// Open takes the directory's lock and opens the store. It starts nothing.
func Open(cfg config.Config, version string, log *slog.Logger) (*Daemon, error) {
	return openBy(time.Now, cfg, version, log)
}

// openBy is Open with the host's clock.
func openBy(wall func() time.Time, cfg config.Config, version string, log *slog.Logger) (*Daemon, error) {
	learners, err := models.Open(cfg.Policy)
	if err != nil {
		return nil, err
	}
	newLearner, err := learners.New(cfg.Learner)
	if err != nil {
		return nil, fmt.Errorf("learner: %w", err)
	}
	if cfg.Machine == "" {
		cfg.Machine = machine.Name(os.DirFS("/"))
	}
	if cfg.GPUArch == "" {
		cfg.GPUArch = machine.Architecture(os.DirFS("/"))
	}
	reward, err := tuner.ParseReward(cmp.Or(cfg.Reward, tuner.RewardCall.String()))
	if err != nil {
		return nil, err
	}
	core, err := tuner.New(tuner.Config{NewLearner: newLearner, Guard: guardOf(cfg), Explore: !cfg.NoExplore, Observe: cfg.Learner == agents.NameDefault, FixedNumerics: cfg.Fixed,
		SampleEvery: cfg.SampleEvery, Seed: cfg.Seed, Trace: cfg.Trace != "", Reward: reward, StepGuard: cfg.StepGuard, Machine: cfg.Machine, GPUArch: cfg.GPUArch})
	if err != nil {
		return nil, err
	}
	dir, err := nccltuner.OpenDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	if err := dir.Lock(); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	trace, err := openTrace(cfg.Trace)
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return &Daemon{cfg: cfg, trace: trace, version: version, log: log, started: time.Now(), wall: wall, sinceBoot: sinceBoot, startedBoot: sinceBoot(), busy: full(), dir: dir,
		scanner: nccltuner.NewScanner(dir, cfg.Store, cfg.Trace), comms: map[tuner.CommID]*comm{}, waiting: map[place]waiting{}, captured: map[tuner.CommID]map[captured]uint64{}, core: core, memory: openMemory(cfg.Store, wall, log),
		mask: wantedEvents, findingCounts: map[string]uint64{}, lastSaid: map[agents.Diagnosis]state.Ns{}, runOf: map[nccltuner.Process]uint64{}, said: map[string]bool{}}, nil
}

func guardOf(cfg config.Config) agents.GuardConfig {
	return agents.DefaultGuardConfig().Budgeted(cfg.Budget)
}

// Close gives back lock and files. The ranks keep the last agreed plans.
func (d *Daemon) Close() error {
	return errors.Join(d.trace.close(), d.memory.Close(), d.scanner.Close(), d.dir.Close())
}

// now counts from 1970, for the store keeps instants, and goes on evenly whatever is done to the host's clock meanwhile. 0
// can mean never.
func (d *Daemon) now() state.Ns {
	return state.Ns(d.started.UnixNano()) + state.Ns(time.Since(d.started)) + d.suspended
}

// sinceBoot asks the kernel, which takes ten times as long as to look at Go's clock.
func sinceBoot() state.Ns {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // every Linux that we run on has it
	return state.Ns(t.Nano())
}

// wake is for once a second: it has now take in that the host was suspended. Less than a second is how far two looks are apart.
func (d *Daemon) wake() {
	if by := d.sinceBoot() - d.startedBoot - state.Ns(time.Since(d.started)); by-d.suspended > state.Ns(time.Second) {
		d.suspended = by
	}
}

// ahead is by how much the host's clock was set since this daemon started, forward or back: instants of now are instants of the
// host, which the store and people want, when that is added. Less than a second is how far two looks are apart.
func (d *Daemon) ahead() state.Ns {
	by := state.Ns(d.wall().UnixNano()) - d.now()
	if by > -state.Ns(time.Second) && by < state.Ns(time.Second) {
		return 0
	}
	return by
}

// startedAt is when this daemon started, by the host's clock as it is set now.
func (d *Daemon) startedAt() time.Time { return d.started.Add(time.Duration(d.ahead())) }

// Reload takes over what may change live.
func (d *Daemon) Reload(cfg config.Config) {
	_ = d.do(context.Background(), func() { // the loop ends only with the process's work: then nothing is to be reloaded
		d.cfg.Tick, d.cfg.SampleEvery, d.cfg.NoExplore, d.cfg.Budget = cfg.Tick, cfg.SampleEvery, cfg.NoExplore, cfg.Budget
		d.core.SetExplore(!cfg.NoExplore)
		d.core.SetGuard(guardOf(cfg))
		d.core.SetSampleEvery(cfg.SampleEvery)
	})
}

// full is a channel that has its one element.
func full() chan struct{} {
	busy := make(chan struct{}, 1)
	busy <- struct{}{}
	return busy
}

// do runs f while the loop sleeps.
func (d *Daemon) do(ctx context.Context, f func()) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	select {
	case d.busy <- struct{}{}:
		done := make(chan struct{})
		go func() { // what panics here ends the daemon, as in the loop; of its caller's goroutine the control server would catch that
			f()
			<-d.busy
			close(done)
		}()
		<-done // calls are short
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the daemon's loop: %w", ctx.Err())
	}
}

// note keeps a finding for people and says it.
func (d *Daemon) note(f tuner.Finding) {
	d.findings.add(f)
	d.findingCounts[f.Diagnosis.String()]++
	level := slog.LevelDebug
	if last, ok := d.lastSaid[f.Diagnosis]; !ok || f.AtNs-last >= sayEvery {
		level, d.lastSaid[f.Diagnosis] = slog.LevelInfo, f.AtNs
	}
	d.log.Log(context.Background(), level, "finding", "comm", control.CommID(f.Comm), "bucket", f.Bucket.String(), "diagnosis", f.Diagnosis.String(), "text", f.Text)
}

// once logs trouble the first time it comes: what stays must not fill the log.
func (d *Daemon) once(what string, err error) {
	if d.first(what + ": " + err.Error()) {
		d.log.Error(what, "err", err)
	}
}

// onceWarn warns of something that is the same for many communicators.
func (d *Daemon) onceWarn(text string) {
	if d.first(text) {
		d.log.Warn(text)
	}
}

// first reports whether a text comes for the first time. Many that differ by a name must not fill the log either, nor keep a daemon
// that lives for months silent for good: when there is no room for more none does any more, for an hour.
func (d *Daemon) first(text string) bool {
	if d.said[text] {
		return false
	}
	if len(d.said) >= saidKept {
		if d.now()-d.saidNs < sayAnewEvery {
			return false
		}
		clear(d.said)
		d.saidNs = d.now()
	}
	d.said[text] = true
	return true
}

// farewell tells the core that all communicators are gone, so that it gives out what it has learned of them.
func (d *Daemon) farewell() {
	for _, id := range d.order {
		if d.comms[id].active {
			d.step(tuner.CommLeft{Comm: id})
		}
	}
}
