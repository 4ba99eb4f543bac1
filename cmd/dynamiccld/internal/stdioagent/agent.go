package stdioagent

import (
	"fmt"
	"math"
	"strings"

	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Agent is the state between lines: one session at most.
type Agent struct {
	learner func(name string) (agents.NewLearner, error)
	batch   func(name string) int
	design  agents.Design
	session *tuner.Session
	index   map[int64]int // of the session's buckets by the driver's ids
	sizes   []int         // of their action sets
}

// New makes an agent that knows learners by name, and how many trials each proposes at once.
func New(learner func(name string) (agents.NewLearner, error), batch func(name string) int) (*Agent, error) {
	design, err := agents.NewDesign(agents.DefaultParams())
	if err != nil {
		return nil, fmt.Errorf("detector: %w", err)
	}
	return &Agent{learner: learner, batch: batch, design: design}, nil
}

// Bounds of a reset: what learners keep grows with the square of an action set.
const (
	maxActions = 1024
	maxPairs   = 16 << 20 // sum over buckets of actions squared: some 300 MB
)

// maxLatencyUs is what no collective takes: a longer one is a hang or a broken clock.
const maxLatencyUs = 1e9

// Answer answers one line with one line. A bad line changes nothing.
func (a *Agent) Answer(text []byte) (answer []byte, quit bool) {
	v, quit, err := a.handle(text)
	if err != nil {
		v = errorAnswer{shorten(err.Error())}
	}
	return encode(v), quit
}

func (a *Agent) handle(text []byte) (answer any, quit bool, err error) {
	r, err := decode(text)
	if err != nil {
		return nil, false, err
	}
	switch r.Op {
	case "reset":
		return okAnswer{OK: true}, false, a.reset(&r)
	case "ask":
		answer, err = a.ask(&r)
	case "tell":
		answer, err = a.tell(&r)
	case "quit":
		return okAnswer{OK: true}, true, nil
	default:
		err = fmt.Errorf("op %q: want one of reset, ask, tell, quit: %w", r.Op, ErrBadRequest)
	}
	return answer, false, err
}

func (a *Agent) reset(r *request) error {
	newLearner, err := a.learner(r.Learner)
	if err != nil {
		return err
	}
	cfg := tuner.SessionConfig{NewLearner: newLearner, Design: a.design, Seed: r.Seed, Batch: a.batch(r.Learner)}
	if cfg.Topology, err = r.Topology.convert(); err != nil {
		return err
	}
	if len(r.Buckets) == 0 {
		return fmt.Errorf("buckets: none; there is nothing to choose: %w", ErrBadRequest)
	}
	index, pairs, sizes := make(map[int64]int, len(r.Buckets)), 0, []int(nil)
	for i := range r.Buckets {
		b := &r.Buckets[i]
		if b.ID == nil {
			return fmt.Errorf("buckets[%d].id is missing: any whole number, by which ask and tell name the bucket: %w", i, ErrBadRequest)
		}
		if first, twice := index[*b.ID]; twice {
			return fmt.Errorf("buckets[%d].id: %d is the id of buckets[%d] already: %w", i, *b.ID, first, ErrBadRequest)
		}
		index[*b.ID] = i
		c, err := b.convert()
		if err != nil {
			return fmt.Errorf("buckets[%d].%w", i, err)
		}
		if pairs += len(c.Set) * len(c.Set); pairs > maxPairs {
			return fmt.Errorf("buckets[%d]: too much to learn at once: the sum over buckets of actions squared is over %d; use fewer buckets or actions: %w", i, maxPairs, ErrBadRequest)
		}
		cfg.Buckets, sizes = append(cfg.Buckets, c), append(sizes, len(c.Set))
	}
	session, err := tuner.NewSession(cfg)
	if err != nil {
		return err
	}
	a.session, a.index, a.sizes = session, index, sizes
	return nil
}

// at finds the bucket that a line names.
func (a *Agent) at(r *request) (int, error) {
	if a.session == nil {
		return 0, fmt.Errorf("%s before reset: nothing is known of the communicator: %w", r.Op, ErrBadRequest)
	}
	if r.Bucket == nil {
		return 0, fmt.Errorf("bucket is missing: the id of one of reset's buckets: %w", ErrBadRequest)
	}
	i, ok := a.index[*r.Bucket]
	if !ok {
		return 0, fmt.Errorf("bucket %d is not one of reset's %d buckets: %w", *r.Bucket, len(a.index), ErrBadRequest)
	}
	return i, nil
}

func (a *Agent) ask(r *request) (any, error) {
	i, err := a.at(r)
	if err != nil {
		return nil, err
	}
	action := a.session.Ask(i)
	return askAnswer{action, a.session.Why(i)}, nil
}

func (a *Agent) tell(r *request) (any, error) {
	i, err := a.at(r)
	if err != nil {
		return nil, err
	}
	var bad []string
	if r.Action == nil || *r.Action < 0 || *r.Action >= a.sizes[i] {
		bad = append(bad, fmt.Sprintf("action: want the index of what ran, 0 to %d", a.sizes[i]-1))
	}
	if r.SignalUs == nil || !(*r.SignalUs > 0) || *r.SignalUs > maxLatencyUs {
		bad = append(bad, fmt.Sprintf("signal_us: want microseconds, above 0 and at most %.0e", maxLatencyUs))
	}
	if r.CounterUs < 0 || r.CounterUs > maxLatencyUs {
		bad = append(bad, fmt.Sprintf("counter_us: want microseconds, at most %.0e; 0 or nothing when not measured", maxLatencyUs))
	}
	if len(bad) > 0 {
		return nil, fmt.Errorf("%s: %w", strings.Join(bad, "; "), ErrBadRequest)
	}
	diagnosis := a.session.Tell(i, *r.Action, ns(r.CounterUs), max(1, ns(*r.SignalUs)))
	return okAnswer{true, diagnosis.String()}, nil
}

func ns(us float64) state.Ns { return state.Ns(math.Round(us * 1000)) }
