package tuner

import (
	"math"
	"math/bits"
	"slices"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// A call that keeps its host for too long has no times: of what mostly does the fast calls alone are measured, and it looks good. But
// ranks tell of each such call that was to be timed. So where a good part of the latest calls of what is in force were slow it is held
// against NCCL's default, by trials of both in turn: a host that has no CPU for a while is slow with either. What loses leaves its
// bucket's set, as what is never heard of does, and is tried again like that.
const (
	slowNs       = 500_000 // that a slow call keeps its host at least (DYN_HOST_LIMIT_NS of preload/probe.h)
	contestFrom  = 4       // slow ones of the latest 16, from which a contest begins; without any it is over
	contestPairs = 4       // of trials in a batch
	contestMost  = 64      // pairs
	contestPause = 256     // calls of the bucket until the next one, twice as many behind each
	contestLong  = 8192
)

// Of pairs of which one call alone is slow it is the default's in half where nothing is wrong with a choice. That it is the choice's in nine of
// ten is what this is tested against (Wald 1945): a choice that is as the default is loses one contest in a thousand.
const (
	contestFor     = 0.59  // log 0.9/0.5
	contestAgainst = -1.61 // log 0.1/0.5
	contestYes     = 6.9
	contestNo      = -2.3
)

// contest is whether what is in force is slow where NCCL's default is not.
type contest struct {
	latest  uint16 // calls of what is in force, the newest in bit 0: slow
	on      bool
	lost    bool // it is
	ratio   float64
	pairs   int
	waiting []bool // calls under the newest entry that have no pair yet: slow
	ofBase  bool   // they are of what is in force, else of the default
	next    uint64 // calls of the bucket as of which one may begin
	pause   uint64
}

// wanted says that one is to begin when so many calls of the bucket were told of.
func (c *contest) wanted(calls uint64) bool {
	return !c.on && calls >= c.next && bits.OnesCount16(c.latest) >= contestFrom
}

func (c *contest) begin() { c.on, c.ratio, c.pairs, c.waiting = true, 0, 0, c.waiting[:0] }

// hears takes in a call of what is in force, or else of the default, and how many of the bucket were told of by now.
func (c *contest) hears(ofBase, slow bool, calls uint64) {
	if ofBase {
		c.latest <<= 1
		if slow {
			c.latest |= 1
		}
	}
	switch {
	case !c.on:
		return
	case len(c.waiting) == 0 || c.ofBase == ofBase:
		if len(c.waiting) < MaxTrials { // others behind the trials have no pair
			c.waiting, c.ofBase = append(c.waiting, slow), ofBase
		}
	default:
		c.pair(slow, c.waiting[0], ofBase)
		c.waiting = slices.Delete(c.waiting, 0, 1)
	}
	c.lost = c.ratio >= contestYes
	if c.lost || c.ratio <= contestNo || c.pairs == contestMost || c.latest == 0 {
		c.on, c.pause = false, min(max(2*c.pause, contestPause), contestLong)
		c.next = calls + c.pause
	}
}

func (c *contest) pair(slow, other, ofBase bool) {
	c.pairs++
	switch {
	case slow == other:
	case slow == ofBase:
		c.ratio += contestFor
	default:
		c.ratio += contestAgainst
	}
}

// apart says that another entry comes: calls that lie far apart are no pair.
func (c *contest) apart() { c.waiting = c.waiting[:0] }

// contests takes in that a call was told of. What gains more a call than a slow one is known to lose is not contested: hosts may be ahead of
// their GPUs by that much.
func (b *bucket) contests(a actions.Action, slow bool) {
	base := b.entry.Base
	if base == actions.Default || a != base && a != actions.Default {
		return
	}
	b.contest.hears(a == base, slow, b.calls)
	if !b.contest.wanted(b.calls) {
		return
	}
	first, it := b.guard.Estimate(actions.Default), b.guard.Estimate(base)
	if first.N == 0 || it.N == 0 || math.Exp(first.LogNs)-math.Exp(it.LogNs) < slowNs {
		b.contest.begin()
		b.fresh = true
	}
}

// slow takes in a call that all ranks have told of, and of which no cost is known.
func (c *Core) slow(m *comm, b *bucket, o state.Observation, bad bool) {
	c.totals.Slow++
	if b != nil && !bad && !overrules(o.Ran, o.Action) {
		b.seenAt = m.observed
		b.counts(&o, true)
	}
}
