package ranklog

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
)

// ErrRuns is returned when logs do not belong together.
var ErrRuns = errors.New("logs of different runs")

// maxDetails bounds Report.Details: the first few say what went wrong.
const maxDetails = 8

// Disagreement is one call for which two ranks did different things.
type Disagreement struct {
	Comm         int
	Seq          uint32
	RankA, RankB int
	A, B         string
}

func (d Disagreement) String() string {
	return fmt.Sprintf("communicator %d call %d: rank %d ran %s, rank %d ran %s", d.Comm, d.Seq, d.RankA, d.A, d.RankB, d.B)
}

// Report is what the logs of one run say.
type Report struct {
	Ranks         int    // logs compared
	Calls         uint64 // getCollInfo calls of the rank that made most
	Compared      uint64 // of them, those that every rank has logged
	Chosen        uint64 // of them, those that the tuner chose
	Truncated     int    // logs that end inside a record
	Disagreements uint64 // must be 0
	Details       []Disagreement
	Phases        []Phase
}

type source struct {
	*Decoder
	rec  Record
	done bool
}

func (s *source) advance() error {
	rec, err := s.Next()
	if errors.Is(err, io.EOF) {
		s.done = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("rank %d: %w", s.Header.Rank, err)
	}
	s.rec = rec
	return nil
}

// CompareFiles compares the logs of all ranks of one run.
func CompareFiles(paths ...string) (Report, error) {
	var readers []io.Reader
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return Report{}, fmt.Errorf("opening rank log: %w", err)
		}
		defer func() { _ = f.Close() }() // read only
		readers = append(readers, f)
	}
	return Compare(readers...)
}

// Compare reads the logs side by side, in memory that grows with a byte a call and not with the number of ranks.
//
// Every rank makes the same calls in the same order, so the n-th records of two ranks must be equal. Ranks that stopped
// early are compared as far as they got.
func Compare(readers ...io.Reader) (Report, error) {
	var sources []*source
	for i, r := range readers {
		d, err := NewDecoder(r)
		if err != nil {
			return Report{}, fmt.Errorf("log %d: %w", i, err)
		}
		sources = append(sources, &source{Decoder: d})
	}
	if len(sources) == 0 {
		return Report{}, fmt.Errorf("no logs: %w", ErrRuns)
	}
	sort.Slice(sources, func(i, j int) bool { return sources[i].Header.Rank < sources[j].Header.Rank })
	if err := sameRun(sources); err != nil {
		return Report{}, err
	}
	rep := Report{Ranks: len(sources)}
	an := newAnalysis()
	for {
		live, err := step(sources)
		if err != nil {
			return Report{}, err
		}
		if len(live) == 0 {
			break
		}
		rep.add(live, len(sources))
		an.add(live[0].rec)
	}
	for _, s := range sources {
		if s.Truncated {
			rep.Truncated++
		}
	}
	rep.Phases = an.phases()
	return rep, nil
}

// step advances all logs and gives those that have another record.
func step(sources []*source) ([]*source, error) {
	var live []*source
	for _, s := range sources {
		if s.done {
			continue
		}
		if err := s.advance(); err != nil {
			return nil, err
		}
		if !s.done {
			live = append(live, s)
		}
	}
	return live, nil
}

func (rep *Report) add(live []*source, all int) {
	rep.Calls++
	if len(live) == all {
		rep.Compared++
	}
	a := live[0]
	if a.rec.Chosen {
		rep.Chosen++
	}
	for _, b := range live[1:] {
		if a.rec == b.rec {
			continue
		}
		rep.Disagreements++
		if len(rep.Details) < maxDetails {
			rep.Details = append(rep.Details, Disagreement{
				Comm: a.rec.Comm, Seq: a.rec.Seq, RankA: a.Header.Rank, RankB: b.Header.Rank, A: describe(a.rec), B: describe(b.rec),
			})
		}
		return // one call counts once, however many ranks differ
	}
}

func describe(r Record) string { return fmt.Sprintf("[%d:%d] %s", r.Comm, r.Seq, r) }

func sameRun(sources []*source) error {
	for i, s := range sources {
		want := sources[0].Header
		want.Rank = s.Header.Rank
		if s.Header != want {
			return fmt.Errorf("ranks %d and %d: %+v and %+v: %w", sources[0].Header.Rank, s.Header.Rank, sources[0].Header, s.Header, ErrRuns)
		}
		if i > 0 && sources[i-1].Header.Rank == s.Header.Rank {
			return fmt.Errorf("two logs of rank %d: %w", s.Header.Rank, ErrRuns)
		}
	}
	return nil
}
