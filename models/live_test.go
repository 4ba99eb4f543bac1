package models_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/models"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/tunersim"
)

// A program makes calls of all sizes of a recorded table, its ranks time trials one by one, as nccltuner/plugin/tuner.c
// does, and the daemon looks every 100 ms. Times are the table's, with 10% of noise, and of a timed call what timing costs.
func TestLearnsAsADaemon(t *testing.T) {
	newLearner, err := models.New(agents.NameLSTM)
	if err != nil {
		t.Fatal(err)
	}
	for condition, want := range map[string]struct{ found, whole float64 }{
		"quiet":        {0.96, 1.1},
		"network-load": {0.96, 1.1},
		"cpu-load":     {0.93, 1.15},
	} {
		l := newLive(t, recorded(t, condition), newLearner)
		for range 4 { // until the daemon first speaks every call is timed, and then nothing is known yet
			if l.runFor(0.5e9); l.byDefault < 0.98*l.spent {
				t.Errorf("%s, after %.1f s: %.3f times as fast as NCCL's default so far", condition, l.spent/1e9, l.byDefault/l.spent)
			}
		}
		l.runFor(10e9)
		found, worst := l.inForce()
		whole := l.byDefault / l.spent
		t.Logf("%s: %.3f times as fast, worst size %.3f, best possible %.3f; all calls %.3f; %d of %d were timed", condition, found, worst, l.best, whole,
			l.timed, l.seq)
		if found < want.found*l.best || worst < 0.97 || whole < want.whole {
			t.Errorf("%s: want %.2f of the best possible, no size below 0.97, %.2f over all calls", condition, want.found, want.whole)
		}
		if share := float64(l.timed) * timedNs / l.spent; share > 0.015 {
			t.Errorf("%s: timing calls took %.4f of the time", condition, share)
		}
	}
}

const liveComm tuner.CommID = 7

const (
	epoch      = 16
	timedNs    = 5300 // tuner/watch.go
	tickNs     = 100e6
	callsInRow = 200 // of one size
)

// live is a communicator in a program, and its daemon.
type live struct {
	t        *testing.T
	core     *tuner.Core
	table    *tunersim.Table
	buckets  []state.Bucket
	samplers map[state.Bucket]*tunersim.Sampler
	best     float64 // geometric mean

	plan, next *tuner.Plan
	entries    map[state.Bucket]tuner.Entry
	version    uint64 // of the latest plan
	running    uint64 // of the one in force
	id         map[state.Bucket]uint32
	entryCalls map[state.Bucket]int
	made       map[state.Bucket]uint16
	window     bool
	seq        uint64
	timed      int

	nowNs, tickedNs, spent, byDefault float64
}

func newLive(t *testing.T, table *tunersim.Table, newLearner agents.NewLearner) *live {
	t.Helper()
	core, err := tuner.New(tuner.Config{NewLearner: newLearner, Explore: true, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	l := &live{t: t, core: core, table: table, samplers: map[state.Bucket]*tunersim.Sampler{}, plan: &tuner.Plan{SampleEvery: 1},
		entries: map[state.Bucket]tuner.Entry{}, id: map[state.Bucket]uint32{}, entryCalls: map[state.Bucket]int{}, made: map[state.Bucket]uint16{}, nowNs: 1e9}
	l.tell(tuner.CommJoined{Comm: liveComm, Shape: table.Shape, EventTimed: true, Explore: true, MaxChannels: 32})
	rng := rand.New(rand.NewPCG(1, 2))
	var gains float64
	for _, b := range table.Buckets() {
		if b.Log2Bytes < 10 || b.Log2Bytes > 20 || b.Collective == actions.Broadcast || b.Collective == actions.Reduce {
			continue
		}
		var marks tuner.MarkSet
		for _, a := range table.Actions(b)[1:] {
			marks |= tuner.MarkOf(a)
		}
		byDefault, best := l.cost(b, actions.Default), math.Inf(1)
		for _, a := range tuner.Choices(b, marks, 32, table.Shape, true) {
			best = min(best, l.cost(b, a))
		}
		gains += math.Log(byDefault / best)
		l.buckets = append(l.buckets, b)
		l.samplers[b] = tunersim.NewSampler(tunersim.SplitNoise(tunersim.NoiseOf(0.1)), rng)
		l.tell(tuner.Marks{Comm: liveComm, Bucket: b, Set: marks})
	}
	l.best = math.Exp(gains / float64(len(l.buckets)))
	return l
}

// cost is the table's; what it does not have costs what the default does.
func (l *live) cost(b state.Bucket, a actions.Action) float64 {
	ns, ok := l.table.Cost(b, a)
	if !ok {
		ns, _ = l.table.Default(b)
	}
	return ns
}

func (l *live) tell(e tuner.Event) {
	for _, p := range l.core.Step(state.Ns(l.nowNs), e).Plans {
		p.Entries = slices.Clone(p.Entries)
		l.next = &p
	}
}

func (l *live) runFor(ns float64) {
	for until := l.spent + ns; l.spent < until; {
		l.call(l.buckets[l.seq/callsInRow%uint64(len(l.buckets))])
		if l.nowNs < l.tickedNs+tickNs {
			continue
		}
		l.tickedNs = l.nowNs
		if l.tell(tuner.Tick{}); l.next != nil {
			l.version++
			l.tell(tuner.Published{Comm: liveComm, Version: l.version})
		}
	}
}

func (l *live) call(b state.Bucket) {
	begins := false
	if l.seq%epoch == 0 {
		if l.next != nil {
			l.plan, l.next, l.running = l.next, nil, l.version
			clear(l.entries)
			for _, e := range l.plan.Called() {
				l.entries[e.Bucket] = e
			}
		}
		before := l.window
		l.window = l.seq/epoch%uint64(l.plan.SampleEvery) == 0
		begins = l.window && !before
	}
	s := tuner.Sample{Comm: liveComm, Seq: l.seq, Bucket: b, Bytes: 1 << b.Log2Bytes, Plan: uint32(l.running), EventTimed: true, ClockNs: 1}
	l.made[b]++
	s.Made = l.made[b]
	timed := l.window && !begins
	if e, ok := l.entries[b]; ok {
		if l.id[b] != e.ID {
			l.id[b], l.entryCalls[b] = e.ID, 0
		}
		l.entryCalls[b]++
		n := l.entryCalls[b]
		s.EntryCall, s.Action = uint8(min(n, 255)), e.Base
		if n <= len(e.Trials) {
			s.Action = e.Trials[n-1]
			timed = timed || n > 1
		}
	}
	ns := l.cost(b, s.Action)
	_, signal, _ := l.samplers[b].Draw(tunersim.Cost{CounterNs: ns, SignalNs: ns}, l.table.Shape.Ranks)
	l.byDefault += l.cost(b, actions.Default)
	l.spent += ns
	if timed {
		l.timed++
		l.spent += timedNs
		s.Ran, s.StartNs, s.SignalNs, s.CounterNs = s.Action, uint64(l.nowNs), state.Ns(signal), state.Ns(signal)
		for r := range l.table.Shape.Ranks {
			of := s
			of.Rank = int32(r)
			l.tell(&of)
		}
	}
	l.nowNs += ns
	l.seq++
}

// inForce is what the choices in force gain over NCCL's default: geometric mean, and the worst size.
func (l *live) inForce() (mean, worst float64) {
	sum, worst := 0.0, math.Inf(1)
	for _, b := range l.buckets {
		gain := l.cost(b, actions.Default) / l.cost(b, l.entries[b].Base)
		sum += math.Log(gain)
		worst = min(worst, gain)
	}
	return math.Exp(sum / float64(len(l.buckets))), worst
}
