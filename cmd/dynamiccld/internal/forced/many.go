package forced

import (
	"context"

	"dynamiccl/state"
)

// Calls that bring a plan into force for many buckets are of one small size.
const (
	settleCollective = "AllReduce"
	settleBytes      = 1024
)

// Settle brings the choices of many buckets into force at once, for two epochs of one small size's calls; the buckets that
// are not named run NCCL's default. It gives the plan's version, for Ran.
func (s *Session) Settle(ctx context.Context, entries []Entry) (version uint32, err error) {
	epochs := s.record.Info().EpochCalls * forceEpochs
	var published uint64
	for range forceTries {
		if published == 0 {
			if published, err = s.publish(entries...); err != nil {
				return 0, err
			}
		}
		s.Forget()
		if _, err := s.Call(ctx, settleCollective, settleBytes, epochs); err != nil {
			return 0, err
		}
		if published != 0 && s.inForce(published) {
			return uint32(published), nil
		}
	}
	return 0, NewFault(Overruled, "the plan did not come into force: NCCL did not ask the tuner")
}

// Ran says of every entry that its calls, one of each at least since Settle, did not run as chosen, and why.
func (s *Session) Ran(ctx context.Context, version uint32, entries []Entry) (map[state.Bucket]error, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	all, err := s.told(ctx, version, entries)
	if err != nil {
		return nil, err
	}
	not := map[state.Bucket]error{}
	for _, e := range entries {
		var c Choice
		if err := s.judge(all[e.Bucket], e.Action, &c); err != nil {
			not[e.Bucket] = err
		}
	}
	return not, nil
}
