package paired

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/sweep"
	"dynamiccl/cmd/dynamiccld/internal/workers"
)

// Kinds of arms.
const (
	ArmPlain   = "plain"   // NCCL with nothing of DynamICCL
	ArmRun     = "run"     // what `dynamiccld run` gives a program, with a daemon that learns
	ArmObserve = "observe" // the same with a daemon that never chooses
	ArmPlugin  = "plugin"  // plugin and preload library without a daemon
)

// Kinds lists them.
var Kinds = []string{ArmPlain, ArmRun, ArmObserve, ArmPlugin}

// observer is the learner that never chooses.
const observer = "default"

// Arm is one group of ranks.
type Arm struct {
	Name    string // as it was asked for
	Kind    string
	Learner string   // of its daemon; "": the daemon's own
	Environ []string // VARIABLE=VALUE, put over what its kind gives
}

// daemon says that the arm has one.
func (a Arm) daemon() bool { return a.Kind == ArmRun || a.Kind == ArmObserve }

// ParseArm reads KIND or run:LEARNER, with +VARIABLE=VALUE behind it any number of times.
func ParseArm(text string) (Arm, error) {
	parts := strings.Split(text, "+")
	kind, learner, named := strings.Cut(parts[0], ":")
	a := Arm{Name: text, Kind: kind, Learner: learner, Environ: parts[1:]}
	if !slices.Contains(Kinds, kind) || named && (kind != ArmRun || learner == "") {
		return a, fmt.Errorf("%q: want %s, or %s:LEARNER", text, strings.Join(Kinds, ", "), ArmRun)
	}
	for _, v := range a.Environ {
		if name, _, set := strings.Cut(v, "="); name == "" || !set {
			return a, fmt.Errorf("%q: %q is no VARIABLE=VALUE", text, v)
		}
	}
	if kind == ArmObserve {
		a.Learner = observer
	}
	return a, nil
}

// Phase is a time with one load.
type Phase struct {
	Load string
	For  time.Duration
}

// quiet is what a phase without load is called.
const quiet = "quiet"

// Name of the load.
func (p Phase) Name() string {
	if p.Load == sweep.LoadNone {
		return quiet
	}
	return p.Load
}

// ParsePhase reads LOAD:DURATION.
func ParsePhase(text string) (Phase, error) {
	name, duration, _ := strings.Cut(text, ":")
	p := Phase{Load: name}
	if name == quiet {
		p.Load = sweep.LoadNone
	}
	if !slices.Contains(sweep.Loads, p.Load) {
		return p, fmt.Errorf("%q: want LOAD:TIME with a load of %s, %s", text, quiet, strings.Join(sweep.Loads[1:], ", "))
	}
	var err error
	if p.For, err = time.ParseDuration(duration); err != nil || p.For < time.Second {
		return p, fmt.Errorf("%q: want a time of at least 1s, as in %s:60s", text, name)
	}
	return p, nil
}

// What one batch times.
const (
	TimeGPU    = "gpu"    // between CUDA events, with all calls enqueued before the first begins
	TimeStream = "stream" // between CUDA events, with calls enqueued while the first ones run
	TimeHost   = "host"   // until all calls are enqueued, before the first begins
	TimeGraph  = "graph"  // between CUDA events, of a graph that each batch captures anew
)

// Times lists them.
var Times = []string{TimeStream, TimeGPU, TimeHost, TimeGraph}

// modes are what workers call them.
var modes = map[string]string{TimeStream: workers.Free, TimeGPU: workers.Stream, TimeHost: workers.Host, TimeGraph: workers.Graph}

// Options of a comparison.
type Options struct {
	Worker      string // dynamiccl-worker
	Executable  string // dynamiccld, for daemons and loads
	NCCL        string // libnccl.so.2; "": the loader's
	Ranks       int
	CPUs        int // of each rank, the same in all arms; 0: wherever the system puts them
	Comms       int // communicators of every rank, whose graphs are captured at once and timed together
	Nodes       int
	Hosts       bool  // each node has a directory and a daemon of its own, as on several hosts
	Arms        []Arm // the first is the base
	Phases      []Phase
	LeastRounds int // of a phase, also where they take longer than its time
	Collectives []string
	Buffers     string // as a sweep's
	Sizes       []uint64
	Calls       int           // of a batch
	Batch       time.Duration // that a batch may take, beside one call
	Time        string
	LoadSize    int
	Timeout     time.Duration // of a batch
	Store       string        // of the arm that learns; "": thrown away
	Serve       []string      // more options of the daemons
	Plain       []string      // environment of the base
	// Tuned is the environment that `dynamiccld run` would give a program of the directory.
	Tuned    func(dir string) []string
	Settings []string // NCCL's variables, and ours, that change what is measured, for the head
	Out      string   // JSON lines; "": none
	Program  string   // version
	Terminal bool     // Progress goes to a terminal
	Progress io.Writer
	Report   io.Writer
	Now      func() time.Time
}

// Limits: a gate holds all calls of a replay back while they are enqueued, and what NCCL and CUDA hold is bounded.
const (
	mostCalls = 200
	mostArms  = 8
	mostComms = 8 // as the worker's
)

// Check says what is wrong with the options.
func (o *Options) Check() error {
	// Ranks, sizes and collectives have the same bounds as a sweep's.
	if o.Buffers == sweep.BuffersRegistered {
		if _, err := sweep.OnRegistered(o.Collectives, true); err != nil {
			return err
		}
	} else if o.Buffers != "" && o.Buffers != sweep.BuffersPlain {
		return fmt.Errorf("--buffers %q: want %s or %s", o.Buffers, sweep.BuffersPlain, sweep.BuffersRegistered)
	}
	like := sweep.Options{Ranks: o.Ranks, Nodes: o.Nodes, Collectives: o.Collectives, Sizes: o.Sizes, Calls: workers.Stream,
		Load: sweep.LoadNone, LoadSize: o.LoadSize, Rounds: 1, Budget: o.Batch, Timeout: o.Timeout}
	if o.Batch <= 0 {
		return fmt.Errorf("--batch %v: want more than none", o.Batch)
	}
	if err := like.Check(); err != nil {
		return err
	}
	learning := 0
	for i, a := range o.Arms {
		if slices.ContainsFunc(o.Arms[:i], func(b Arm) bool { return b.Name == a.Name }) {
			return fmt.Errorf("--arms: %s is named twice", a.Name)
		}
		if a.Kind == ArmRun {
			learning++
		}
	}
	switch {
	case o.Ranks < 2:
		return fmt.Errorf("%d ranks: want 2 or more, nothing is communicated otherwise", o.Ranks)
	case o.Hosts && o.Nodes < 2:
		return errors.New("--hosts: one node has one daemon: want 2 nodes or more")
	case o.CPUs < 0 || o.CPUs*o.Ranks > runtime.NumCPU():
		return fmt.Errorf("--cpus-per-rank %d: want 0 to %d, for %d ranks on %d CPUs", o.CPUs, runtime.NumCPU()/o.Ranks, o.Ranks, runtime.NumCPU())
	case len(o.Arms) < 2 || len(o.Arms) > mostArms:
		return fmt.Errorf("--arms: %d of them; want 2 to %d, the first of which is the base", len(o.Arms), mostArms)
	case o.LeastRounds < 0:
		return fmt.Errorf("--min-rounds %d: want 0 or more", o.LeastRounds)
	case len(o.Phases) == 0:
		return errors.New("no phases")
	case o.Calls < 1 || o.Calls > mostCalls:
		return fmt.Errorf("--calls %d: want 1 to %d", o.Calls, mostCalls)
	case modes[o.Time] == "":
		return fmt.Errorf("--time %q: want one of %s", o.Time, strings.Join(Times, ", "))
	case o.Comms < 1 || o.Comms > mostComms:
		return fmt.Errorf("--comms %d: want 1 to %d", o.Comms, mostComms)
	case o.Comms > 1 && o.Time != TimeGraph:
		return fmt.Errorf("--comms %d: several communicators are timed in graphs alone: add --time %s, or leave --comms out", o.Comms, TimeGraph)
	case o.Store != "" && learning != 1:
		return fmt.Errorf("--store is one arm's, and %d of kind %s are asked for: name one", learning, ArmRun)
	}
	return nil
}

// Point is one collective and size.
type Point struct {
	Collective string
	Bytes      uint64
}

func (o *Options) points() (all []Point) {
	for _, c := range o.Collectives {
		for _, bytes := range o.Sizes {
			all = append(all, Point{c, bytes})
		}
	}
	return all
}
