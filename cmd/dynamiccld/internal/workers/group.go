package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"dynamiccl/nccltuner"
)

// Spec describes a group of ranks.
type Spec struct {
	Program    string // dynamiccl-worker
	Ranks      int    // rank r runs on the r-th GPU that CUDA shows; with Nodes, these are counted round where a node's ranks have enough
	Comms      int    // communicators of all ranks, of each of which a graph is captured; 0: one
	Nodes      int    // more than 1: the ranks take one another for ranks of so many hosts. Invariant: divides Ranks
	NCCL       string // libnccl.so.2; "": the loader's
	MaxBytes   uint64 // of any call
	Registered bool   // buffers are NCCL's own memory, registered for its symmetric kernels
	CPUs       int    // that a rank stays on, the same for this rank of every group; 0: wherever the system puts it
	Environ    []string
	NodeDirs   []string // by node: DYNAMICCL_DIR of its ranks; none: as Environ has it
	Logs       string   // folder for what ranks say on standard error
	// Idle, when set, is called about every IdleEvery while answers are awaited, in the goroutine of the caller.
	Idle func()
}

// IdleEvery is the time between two calls of Spec.Idle.
const IdleEvery = 25 * time.Millisecond

// How long what has no time of its own may take.
const (
	grace   = 2 * time.Second // for the other ranks' word, once one has failed
	byeTime = 5 * time.Second
	endTime = 10 * time.Second // of a killed process: one that hangs in the driver takes a moment
)

// hostIDVariable makes NCCL believe that ranks with different values are on different hosts.
const hostIDVariable = "NCCL_HOSTID"

// environ is a rank's environment.
func (s Spec) environ(rank int) []string {
	if s.Nodes <= 1 {
		return s.Environ
	}
	env := slices.DeleteFunc(slices.Clone(s.Environ), func(e string) bool { return strings.HasPrefix(e, hostIDVariable+"=") })
	node := rank * s.Nodes / s.Ranks
	if len(s.NodeDirs) > 0 {
		env = append(env, nccltuner.DirVariable+"="+s.NodeDirs[node]) // the last one counts
	}
	return append(env, hostIDVariable+"=dynamiccl-node"+strconv.Itoa(node))
}

// Group is the processes of one communicator, or of several that have the same ranks. It belongs to one goroutine.
type Group struct {
	spec      Spec
	processes []*process
	answers   chan answer
	broken    error // why it cannot be asked any more
}

// Start starts the processes. They have no communicator yet.
func Start(s Spec) (*Group, error) {
	if s.Ranks < 1 || s.Nodes < 1 || s.Ranks%s.Nodes != 0 {
		return nil, fmt.Errorf("%d ranks on %d nodes: want the same number of ranks on every node", s.Ranks, s.Nodes)
	}
	// Room for an answer and the end of each: nobody blocks when nobody listens any more.
	g := &Group{spec: s, answers: make(chan answer, 2*s.Ranks)}
	for rank := range s.Ranks {
		p, err := start(s, rank, g.answers)
		if err != nil {
			return nil, errors.Join(err, g.Kill())
		}
		g.processes = append(g.processes, p)
	}
	return g, nil
}

// Init makes the communicators.
func (g *Group) Init(ctx context.Context, within time.Duration) ([]Ready, error) {
	ids := ""
	for range max(1, g.spec.Comms) {
		first, err := ask[struct {
			ID string `json:"id"`
		}](ctx, g, g.processes[:1], within, request{Do: "id"})
		if err != nil {
			return nil, err
		}
		ids += first[0].ID
	}
	return ask[Ready](ctx, g, g.processes, within, request{Do: "init", ID: ids})
}

// Call makes calls without a graph on all ranks, as many on each communicator.
func (g *Group) Call(ctx context.Context, within time.Duration, collective string, bytes uint64, calls int) ([]Called, error) {
	return ask[Called](ctx, g, g.processes, within, request{Do: "call", Collective: collective, Bytes: bytes, Calls: calls})
}

// Measure measures on all ranks at once.
func (g *Group) Measure(ctx context.Context, within time.Duration, a Ask) ([]Measured, error) {
	return ask[Measured](ctx, g, g.processes, within, request{Do: "measure", Collective: a.Collective, Bytes: a.Bytes, Mode: a.Mode, Memory: a.Memory,
		Calls: a.Calls, WarmUs: &a.WarmUs, Replays: a.Replays, MinReplays: a.MinReplays, BudgetUs: &a.BudgetUs})
}

// Load switches what the GPUs do beside: "none", "compute" or "copy".
func (g *Group) Load(ctx context.Context, within time.Duration, kind string) error {
	_, err := ask[struct{}](ctx, g, g.processes, within, request{Do: "load", Kind: kind})
	return err
}

// ask gives every process the request and waits for all answers. After an error other than ErrRefused by all the group
// cannot be asked again: what a rank says later would be taken for the answer to the next question.
func ask[T any](ctx context.Context, g *Group, to []*process, within time.Duration, r request) ([]T, error) {
	if g.broken != nil {
		return nil, g.broken
	}
	for _, p := range to {
		_ = p.send(r) // to one that has ended: its end comes as an answer
	}
	out := make([]T, len(to))
	waiting := map[int]bool{}
	for _, p := range to {
		waiting[p.rank] = true
	}
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	idle := time.NewTicker(IdleEvery)
	defer idle.Stop()
	var failed error
	refused := 0
	for len(waiting) > 0 {
		select {
		case <-ctx.Done():
			g.broken = ctx.Err()
			return nil, g.broken
		case a := <-g.answers:
			into := new(T)
			err := g.read(a, into, r.Do)
			if waiting[a.rank] && err == nil {
				out[a.rank] = *into // those who are asked are the first ranks
			}
			delete(waiting, a.rank)
			if errors.Is(err, ErrRefused) {
				refused++
			}
			if err != nil {
				if failed == nil {
					deadline.Reset(grace)
				}
				failed = errors.Join(failed, err)
			}
		case <-idle.C:
			if g.spec.Idle != nil {
				g.spec.Idle()
			}
		case <-deadline.C:
			if failed == nil {
				failed = fmt.Errorf("%s: %s: %w (%v)%s", r.Do, ranksOf(sorted(waiting)), ErrHung, within, g.words(sorted(waiting)[0]))
			}
			g.broken = failed
			return nil, failed
		}
	}
	if failed == nil {
		return out, nil
	}
	if refused < len(to) {
		g.broken = failed
	}
	return nil, failed
}

// read takes an answer apart.
func (g *Group) read(a answer, into any, do string) error {
	if a.err != nil {
		return fmt.Errorf("%s: rank %d: %w (%w)%s", do, a.rank, ErrDied, a.err, g.words(a.rank))
	}
	var said struct {
		Error string `json:"error"`
	}
	err := json.Unmarshal(a.line, &said)
	if err == nil && said.Error != "" {
		return fmt.Errorf("%s: rank %d: %w: %s%s", do, a.rank, ErrRefused, said.Error, g.words(a.rank))
	}
	if err == nil {
		err = json.Unmarshal(a.line, into)
	}
	if err != nil {
		return fmt.Errorf("%s: rank %d: answer %q is not understood: %w; use worker and dynamiccld of one build", do, a.rank, a.line, err)
	}
	return nil
}

// words is what a rank said last, for the end of an error.
func (g *Group) words(rank int) string {
	if text := g.processes[rank].lastWords(); text != "" {
		return "; it said:\n" + text
	}
	return ""
}

func sorted(set map[int]bool) []int {
	var all []int
	for k := range set {
		all = append(all, k)
	}
	slices.Sort(all)
	return all
}

// Close lets the ranks end by themselves, and kills what does not.
func (g *Group) Close(ctx context.Context) error {
	if g.broken == nil {
		for _, p := range g.processes {
			_ = p.send(request{Do: "bye"}) // one that has ended is what is wanted
			_ = p.stdin.Close()
		}
		g.await(ctx, byeTime)
	}
	return g.Kill()
}

// Kill ends all processes and waits for their end.
func (g *Group) Kill() error {
	if g.broken == nil {
		g.broken = errors.New("the ranks were ended")
	}
	for _, p := range g.processes {
		select {
		case <-p.gone:
			continue // its number may be another process's by now
		default:
			p.kill()
		}
	}
	if left := g.await(context.Background(), endTime); len(left) > 0 {
		return fmt.Errorf("%s: still there %v after SIGKILL: the driver holds it; see dmesg", ranksOf(left), endTime)
	}
	return nil
}

// await waits for the end of all and says who is left.
func (g *Group) await(ctx context.Context, within time.Duration) (left []int) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for _, p := range g.processes {
		if !g.awaitOne(ctx, p) {
			left = append(left, p.rank)
		}
	}
	return left
}

func (g *Group) awaitOne(ctx context.Context, p *process) bool {
	for {
		select {
		case <-p.gone:
			return true
		case <-g.answers: // what it still says
		case <-ctx.Done():
			return false
		}
	}
}
