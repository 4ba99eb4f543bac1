package stdioagent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// ErrBadRequest is wrapped by every error about a line's content.
var ErrBadRequest = errors.New("bad request")

// request is any line. Pointers tell a missing field from a zero.
type request struct {
	Op string `json:"op"`

	Learner  string    `json:"learner"`
	Seed     uint64    `json:"seed"`
	Topology *topology `json:"topology"`
	Buckets  []bucket  `json:"buckets"`

	Bucket    *int64   `json:"bucket"`
	Action    *int     `json:"action"`
	CounterUs float64  `json:"counter_us"`
	SignalUs  *float64 `json:"signal_us"`
}

type topology struct {
	Ranks     int    `json:"ranks"`
	Nodes     int    `json:"nodes"`
	NICs      int    `json:"nics"`
	Transport string `json:"transport"`
}

type bucket struct {
	ID         *int64   `json:"id"`
	Collective string   `json:"collective"`
	Bytes      uint64   `json:"bytes"`
	Actions    []action `json:"actions"`
}

type action struct {
	Path      string `json:"path"`
	Algorithm string `json:"algorithm"`
	Protocol  string `json:"protocol"`
	Kernel    string `json:"kernel"`
	Channels  int    `json:"channels"`
	Contexts  int    `json:"contexts"`
	Flat      bool   `json:"flat"`
	Threads   int    `json:"threads"`
	Backend   string `json:"backend"`
}

type errorAnswer struct {
	Error string `json:"error"`
}

type okAnswer struct {
	OK        bool   `json:"ok"`
	Diagnosis string `json:"diagnosis,omitempty"`
}

type askAnswer struct {
	Action int    `json:"action"`
	Why    string `json:"why"`
}

// encode makes one line.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // answers hold strings and numbers only
	}
	return b.Bytes()
}

// maxError bounds an error's text: it may quote what was sent.
const maxError = 600

func shorten(s string) string {
	if len(s) <= maxError {
		return s
	}
	cut := maxError
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

func decode(text []byte) (request, error) {
	var r request
	if len(bytes.TrimSpace(text)) == 0 {
		return r, fmt.Errorf("an empty line: write one JSON object a line: %w", ErrBadRequest)
	}
	err := json.Unmarshal(text, &r)
	if kind := new(json.UnmarshalTypeError); errors.As(err, &kind) {
		if kind.Field == "" {
			kind.Field = "line"
		}
		return r, fmt.Errorf("%s: got a JSON %s, want %s: %w", kind.Field, kind.Value, wanted(kind.Type.Kind().String()), ErrBadRequest)
	}
	if err != nil {
		return r, fmt.Errorf("not one JSON object: %w: %w", err, ErrBadRequest)
	}
	return r, nil
}

func wanted(kind string) string {
	switch {
	case strings.HasPrefix(kind, "uint"):
		return "a whole number, 0 or more"
	case strings.HasPrefix(kind, "int"):
		return "a whole number"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "slice":
		return "a list"
	case kind == "struct":
		return "an object"
	}
	return "a " + kind
}

func (t *topology) convert() (state.Topology, error) {
	switch {
	case t == nil:
		return state.Topology{}, fmt.Errorf(`topology is missing: write {"ranks":8,"nodes":1,"nics":0,"transport":"nvlink"}: %w`, ErrBadRequest)
	case t.Ranks < 1:
		return state.Topology{}, fmt.Errorf("topology.ranks: %d, want 1 or more: %w", t.Ranks, ErrBadRequest)
	case t.Nodes < 1 || t.Nodes > t.Ranks:
		return state.Topology{}, fmt.Errorf("topology.nodes: %d, want 1 to the number of ranks (%d): %w", t.Nodes, t.Ranks, ErrBadRequest)
	case t.NICs < 0:
		return state.Topology{}, fmt.Errorf("topology.nics: %d, want 0 (none or not known) or more: %w", t.NICs, ErrBadRequest)
	}
	return state.Topology{Shape: state.Shape{Ranks: t.Ranks, Nodes: t.Nodes, Transport: t.Transport}, NICs: t.NICs}, nil
}

// untuned are NCCL's operations that have no algorithm to choose, so that it asks no tuner about them.
var untuned = []string{"SendRecv", "Send", "Recv", "Gather", "Scatter", "AllGatherV"}

func (b *bucket) convert() (tuner.SessionBucket, error) {
	out := tuner.SessionBucket{Bytes: b.Bytes}
	folded := strings.ReplaceAll(b.Collective, "_", "")
	if slices.ContainsFunc(untuned, func(n string) bool { return strings.EqualFold(n, folded) }) {
		return out, fmt.Errorf("collective: NCCL asks no tuner about %s, so there is nothing to choose; those that can be tuned are %s: %w", b.Collective, collectives(), ErrBadRequest)
	}
	c, err := actions.ParseCollective(b.Collective)
	if err != nil {
		return out, err
	}
	var ok bool
	if out.Bucket, ok = state.BucketOf(c, b.Bytes); !ok {
		return out, fmt.Errorf("bytes: %d, want 1 or more: %w", b.Bytes, ErrBadRequest)
	}
	if len(b.Actions) == 0 {
		return out, fmt.Errorf(`actions: none; action 0 is {"path":"default"}: %w`, ErrBadRequest)
	}
	if len(b.Actions) > maxActions {
		return out, fmt.Errorf("actions: %d, at most %d: %w", len(b.Actions), maxActions, ErrBadRequest)
	}
	for i := range b.Actions {
		a, err := b.Actions[i].convert()
		if err != nil {
			return out, fmt.Errorf("actions[%d].%w", i, err)
		}
		out.Set = append(out.Set, a)
	}
	if out.Set[0] != actions.Default {
		return out, fmt.Errorf(`actions[0]: %s; want {"path":"default"}, NCCL's own choice, which every other must beat: %w`, out.Set[0], ErrBadRequest)
	}
	return out, nil
}

func collectives() string {
	var names []string
	for c := range actions.Collective(actions.NumCollectives) {
		names = append(names, c.String())
	}
	return strings.Join(names, ", ")
}

// given tells a name from what measurements write where there is none.
func given(s string) bool { return s != "" && s != "-" }

func (in *action) convert() (a actions.Action, err error) {
	if a.Path, err = actions.ParsePath(in.Path); err != nil {
		return a, err
	}
	// The zero algorithm and protocol have names, so a missing one would become Tree or LL.
	for _, f := range []struct{ name, value string }{{"algorithm", in.Algorithm}, {"protocol", in.Protocol}} {
		if want := a.Path == actions.PathCollective; want != given(f.value) {
			return a, fmt.Errorf("%s: %q; path collective has one, no other path has: %w", f.name, f.value, ErrBadRequest)
		}
	}
	if a.Path == actions.PathCollective {
		if a.Algorithm, err = actions.ParseAlgorithm(in.Algorithm); err != nil {
			return a, err
		}
		if a.Protocol, err = actions.ParseProtocol(in.Protocol); err != nil {
			return a, err
		}
	}
	if given(in.Kernel) { // path lsa without one is one shot, as before there were others
		switch a.Path {
		case actions.PathLSA:
			a.Kernel, err = actions.ParseKernel(in.Kernel)
		case actions.PathSymmetric:
			a.Symmetric, err = actions.ParseSymmetric(in.Kernel)
		default:
			err = fmt.Errorf("kernel: only path lsa and path symmetric have one: %w", ErrBadRequest)
		}
		if err != nil {
			return a, err
		}
	}
	if given(in.Backend) {
		if a.Backend, err = actions.ParseBackend(in.Backend); err != nil {
			return a, err
		}
	}
	if a.Flat = in.Flat; a.Flat && a.Path != actions.PathGIN {
		return a, fmt.Errorf("flat: only path gin is flat or hierarchical: %w", ErrBadRequest)
	}
	channels := in.Channels
	switch {
	case in.Contexts == 0:
	case a.Path != actions.PathGIN:
		return a, fmt.Errorf("contexts: only path gin has contexts: %w", ErrBadRequest)
	case in.Channels == 0: // a CTA for each
		channels = in.Contexts
	case in.Contexts < 0 || in.Contexts > actions.MaxContexts:
		return a, fmt.Errorf("contexts: %d, want 1 to %d that CTAs share: %w", in.Contexts, actions.MaxContexts, ErrBadRequest)
	default:
		a.Contexts = uint8(in.Contexts)
	}
	if channels < 0 || channels > 255 {
		return a, fmt.Errorf("channels: %d, want 1 to 255, or 0 for NCCL's own number: %w", channels, ErrBadRequest)
	}
	if in.Threads < 0 || in.Threads%actions.WarpThreads != 0 || in.Threads/actions.WarpThreads > 255 {
		return a, fmt.Errorf("threads: %d, want a multiple of %d up to %d, or 0 for NCCL's own number: %w", in.Threads, actions.WarpThreads, 255*actions.WarpThreads, ErrBadRequest)
	}
	a.Channels, a.Warps = uint8(channels), uint8(in.Threads/actions.WarpThreads)
	return a, a.Check()
}
