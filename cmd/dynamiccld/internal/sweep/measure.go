package sweep

import (
	"context"
	"errors"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/tuner"
)

// session is the ranks of a sweep.
type session struct {
	*forced.Session
	o      *Options
	groups *tuner.Groups
}

// openSession starts the ranks in a folder of their own, with the GPUs' load where one is asked for.
func openSession(ctx context.Context, o *Options, folder string) (*session, error) {
	ranks, err := forced.Open(ctx, forced.Config{Worker: o.Worker, NCCL: o.NCCL, Ranks: o.Ranks, Nodes: o.Nodes, MaxBytes: o.largest(), Calls: o.Calls,
		Times: o.Samples != "", Exact: o.Exact, Timeout: o.Timeout, Environ: o.Environ, Registered: o.Buffers == BuffersRegistered}, folder)
	if err != nil {
		return nil, err
	}
	s := &session{Session: ranks, o: o, groups: tuner.NewGroups(o.Ranks)}
	if o.Load == LoadCompute || o.Load == LoadCopy {
		if err := s.Load(ctx, o.Load); err != nil {
			return nil, errors.Join(err, s.Kill())
		}
	}
	return s, nil
}

// probe runs NCCL's default and gives what it allows in the bucket.
func (s *session) probe(ctx context.Context, collective string, bytes uint64) (marks uint32, maxChannels int, err error) {
	f, err := s.Force(ctx, collective, bytes, actions.Default)
	if err != nil || !f.Asked {
		return 0, 0, err
	}
	marks, err = s.Allowed(collective, bytes)
	return marks, s.MaxChannels(), err
}

// point measures one choice and says what is known of it.
func (s *session) point(ctx context.Context, collective string, bytes uint64, a actions.Action, p *Point) error {
	f, err := s.Force(ctx, collective, bytes, a)
	if err != nil {
		return err
	}
	switch {
	case f.Ran != actions.Default:
		p.Ran = f.Ran.String()
	case f.Device:
		p.Ran = deviceKernel
	}
	effort := forced.Thorough
	if s.o.Single > 0 {
		effort = forced.Single(s.o.Single)
	}
	effort.Budget = s.o.Budget
	got, calls, err := s.Measure(ctx, collective, bytes, f.CallUs, effort)
	if err != nil {
		return err
	}
	ranks := callsOf(got)
	p.MedianUs, p.IQRUs, p.RankUs = forced.Slowest(ranks)
	if s.o.Single > 0 {
		p.CallUs, p.Noise = ranks, callNoise(ranks)
	}
	p.Replays, p.Calls, p.Grid = len(got[0].Us), calls, got[0].Grid
	if a.Path == actions.PathCollective && s.o.Buffers != BuffersRegistered && a.Channels == 0 && f.Ran.Channels == 0 && !f.Device {
		return forced.NewFault(OutcomeUnseen, "the number of channels that ran is not known, and tables want one")
	}
	if s.o.Samples == "" {
		return nil
	}
	// Again, now watched: watching has its price, which is no part of what samples are held against.
	s.Forget()
	if err := s.Want(forced.WantTimes); err != nil {
		return err
	}
	if got, _, err = s.Measure(ctx, collective, bytes, f.CallUs, effort); err != nil {
		return err
	}
	p.WatchedUs, _, _ = forced.Slowest(callsOf(got))
	return s.writeSamples(ctx, collective, bytes, a, f.Version, p)
}

// callsOf gives every rank's times.
func callsOf(got []workers.Measured) [][]float64 {
	ranks := make([][]float64, len(got))
	for i, m := range got {
		ranks[i] = m.Us
	}
	return ranks
}
