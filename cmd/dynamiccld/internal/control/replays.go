package control

import (
	"context"
	"net/http"
	"time"

	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Graphs is what CUDA graphs of living communicators have told, in short.
type Graphs struct {
	Replays uint64 `json:"replays"` // seen
	Choices int    `json:"choices"` // of ours that graphs hold, by collective and bytes
	Changed int    `json:"changed"` // of which the cost has changed
}

// GraphsOf is nil where no replay was seen.
func GraphsOf(n tuner.ReplayCounts) *Graphs {
	if n.Choices == 0 {
		return nil
	}
	return &Graphs{n.Replays, n.Choices, n.Changed}
}

// Replay is a choice that CUDA graphs hold, with what our kernel took when they ran it again. Its JSON keys are an interface:
// add, never rename.
type Replay struct {
	Comm        string         `json:"comm"`
	NCCLVersion string         `json:"nccl_version,omitempty"`
	Ranks       int            `json:"ranks"`
	Nodes       int            `json:"nodes"`
	Transport   string         `json:"transport,omitempty"`
	Collective  string         `json:"collective"`
	Bytes       uint64         `json:"bytes"`
	Choice      string         `json:"choice"`  // that was captured
	Replays     uint64         `json:"replays"` // seen: about one in 64 of those that ran
	First       *time.Time     `json:"first_seen,omitempty"`
	Last        *time.Time     `json:"last_seen,omitempty"`
	Signal      Latency        `json:"signal"`            // since the last change
	Counter     *Latency       `json:"counter,omitempty"` // likewise; nil: not measured
	Changes     uint64         `json:"changes"`           // of the cost
	Changed     *ReplayChanged `json:"changed,omitempty"` // the last time

	Bucket state.Bucket `json:"-"`
}

// Latency is the centre of what replays took.
type Latency struct {
	MedianNs float64 `json:"median_ns"`
	MeanNs   float64 `json:"mean_ns"`
}

// ReplayChanged is a change of cost, between medians.
type ReplayChanged struct {
	At      time.Time `json:"at"`
	Signal  Change    `json:"signal"`
	Counter *Change   `json:"counter,omitempty"` // nil: not measured
}

// Change is a latency before and after.
type Change struct {
	BeforeNs float64 `json:"before_ns"`
	AfterNs  float64 `json:"after_ns"`
}

// FromReplays gives what a live daemon shows. nowNs is the daemon's clock at the wall time now.
func FromReplays(v tuner.ReplayView, nowNs state.Ns, now time.Time) Replay {
	r := Replay{Comm: CommID(v.Comm), Ranks: v.Shape.Ranks, Nodes: v.Shape.Nodes, Transport: v.Shape.Transport,
		Collective: v.Bucket.Collective.String(), Bytes: v.Bytes, Choice: v.Choice.String(), Replays: v.Replays,
		First: instant(v.FirstNs, nowNs, now), Last: instant(v.LastNs, nowNs, now), Signal: latency(v.Signal), Changes: v.Changes, Bucket: v.Bucket}
	if v.Counter.MedianNs > 0 {
		c := latency(v.Counter)
		r.Counter = &c
	}
	if at := instant(v.Changed.AtNs, nowNs, now); v.Changes > 0 && at != nil {
		r.Changed = &ReplayChanged{At: *at, Signal: change(v.Changed.Signal)}
		if v.Changed.Counter.BeforeNs > 0 {
			c := change(v.Changed.Counter)
			r.Changed.Counter = &c
		}
	}
	return r
}

// BucketOf stands for the bucket of a replay where nothing is known of calls: it has no choice.
func BucketOf(r Replay) Bucket {
	b := Bucket{Comm: r.Comm, NCCLVersion: r.NCCLVersion, Ranks: r.Ranks, Nodes: r.Nodes, Transport: r.Transport, Collective: r.Collective, Bucket: r.Bucket}
	b.MinBytes, b.MaxBytes = bucketRange(r.Bucket)
	return b
}

func latency(c tuner.ReplayCost) Latency { return Latency{finite(c.MedianNs, 0), finite(c.MeanNs, 0)} }

func change(c agents.Change) Change { return Change{finite(c.BeforeNs, 0), finite(c.AfterNs, 0)} }

func (s *Server) replays(ctx context.Context, st Status) (any, error) {
	views, err := s.backend.Replays(ctx)
	if err != nil {
		return nil, err
	}
	versions := ncclVersions(st)
	now, out := s.now(), make([]Replay, 0, len(views))
	for _, v := range views {
		r := FromReplays(v, st.NowNs, now)
		r.NCCLVersion = versions[r.Comm]
		out = append(out, r)
	}
	return out, nil
}

// Replays are the choices that CUDA graphs hold, in the daemon's order.
func (c *Client) Replays(ctx context.Context) (all []Replay, err error) {
	if err := c.call(ctx, http.MethodGet, "/v1/replays", nil, &all); err != nil {
		return nil, err
	}
	for i := range all {
		b := Bucket{Collective: all[i].Collective, MinBytes: all[i].Bytes}
		if all[i].Bucket, err = b.bucket(); err != nil {
			return nil, c.otherVersion(err)
		}
	}
	return all, nil
}
