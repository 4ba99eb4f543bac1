package control

import (
	"context"
	"net/http"
	"time"

	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Links is what living communicators' puts over GIN have told, in short.
type Links struct {
	Trips   uint64 `json:"trips"`   // seen
	Links   int    `json:"links"`   // from a rank to a peer, over a context
	Changed int    `json:"changed"` // of which a diagnosis is in force
}

// LinksOf is nil where no put was seen.
func LinksOf(n tuner.LinkCounts) *Links {
	if n.Links == 0 {
		return nil
	}
	return &Links{n.Trips, n.Links, n.Changed}
}

// Link is the way from one rank to another over one context of GIN. Its JSON keys are an interface: add, never rename.
type Link struct {
	Comm      string     `json:"comm"`
	Rank      int32      `json:"rank"`
	Peer      int32      `json:"peer"`
	Context   uint8      `json:"context"`
	Backend   string     `json:"backend"`
	Trips     uint64     `json:"trips"` // seen: about one call in 256 is timed
	First     *time.Time `json:"first_seen,omitempty"`
	Last      *time.Time `json:"last_seen,omitempty"`
	Sizes     []LinkSize `json:"sizes"`
	Diagnosis string     `json:"diagnosis"`
	Detail    string     `json:"detail,omitempty"`    // what the diagnosis rests on
	Changed   *time.Time `json:"changed,omitempty"`   // since when it is that
	Saturated []string   `json:"saturated,omitempty"` // where more contexts move nothing faster, by size
}

// LinkSize is what puts of about one size take, since the last alarm.
type LinkSize struct {
	MinBytes uint64   `json:"min_bytes"` // less than twice as many
	Trips    uint64   `json:"trips"`
	Signal   Latency  `json:"signal"`            // of put and answer, there and back
	Counter  *Latency `json:"counter,omitempty"` // until the source was read; nil: nothing was put
}

// FromLinks gives what a live daemon shows. nowNs is the daemon's clock at the wall time now.
func FromLinks(v tuner.LinkView, nowNs state.Ns, now time.Time) Link {
	l := Link{Comm: CommID(v.Comm), Rank: v.Rank, Peer: v.Peer, Context: v.Context, Backend: v.Backend.String(), Trips: v.Trips,
		First: instant(v.FirstNs, nowNs, now), Last: instant(v.LastNs, nowNs, now), Sizes: []LinkSize{}, Diagnosis: v.Verdict.Diagnosis.String()}
	if v.Verdict.Diagnosis != agents.DiagnosisNone {
		l.Detail, l.Changed = v.Verdict.Detail(), instant(v.ChangedNs, nowNs, now)
	}
	for _, s := range v.Saturated {
		l.Saturated = append(l.Saturated, s.String())
	}
	for _, s := range v.Sizes {
		size := LinkSize{MinBytes: 1 << s.Log2Bytes, Trips: s.Trips, Signal: latency(s.Signal)}
		if s.Counter.MedianNs > 0 {
			c := latency(s.Counter)
			size.Counter = &c
		}
		l.Sizes = append(l.Sizes, size)
	}
	return l
}

func (s *Server) links(ctx context.Context, st Status) (any, error) {
	views, err := s.backend.Links(ctx)
	if err != nil {
		return nil, err
	}
	now, out := s.now(), make([]Link, 0, len(views))
	for _, v := range views {
		out = append(out, FromLinks(v, st.NowNs, now))
	}
	return out, nil
}

// Links are the ways between ranks over GIN, by communicator, rank, peer and context.
func (c *Client) Links(ctx context.Context) (all []Link, err error) {
	return all, c.call(ctx, http.MethodGet, "/v1/links", nil, &all)
}
