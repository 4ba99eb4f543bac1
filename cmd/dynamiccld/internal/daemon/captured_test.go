package daemon

import (
	"slices"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Captured calls are counted, also those of communicators that are not known yet, and never reach the core.
func TestCapturedCallsAreCounted(t *testing.T) {
	d, _ := open(t, testConfig(t))
	defer d.Close()
	bucket, _ := state.BucketOf(actions.AllReduce, 1<<10)
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL}
	untimed := nccltuner.Sample{CommID: 7, NRanks: 2, Bytes: 1 << 10, Bucket: bucket, Untimed: true, Captured: true}
	for seq := range uint64(10) {
		for rank := range int32(2) {
			s := untimed
			s.Seq, s.Rank = seq, rank
			if seq >= 8 {
				s.Action = ring
			}
			d.sample(&s)
		}
	}
	plain := untimed
	plain.Captured = false
	d.sample(&plain)
	if got := d.captured[7]; len(got) != 2 || got[captured{bucket, actions.Default}] != 16 || got[captured{bucket, ring}] != 4 {
		t.Errorf("counted %v", got)
	}
	if d.sampleCount != 21 || d.core.Totals() != (tuner.Totals{}) {
		t.Errorf("%d samples, the core saw %+v", d.sampleCount, d.core.Totals())
	}
}

// Samples of communicators that are gone are read when their process lives on, or when a daemon comes late, and nobody forgets those a
// second time: they take no place from communicators that are there.
func TestCapturedCallsOfCommunicatorsThatAreGone(t *testing.T) {
	d, _ := open(t, testConfig(t))
	defer d.Close()
	bucket, _ := state.BucketOf(actions.AllReduce, 1<<10)
	sample := nccltuner.Sample{CommID: 7, NRanks: 2, Bytes: 1 << 10, Bucket: bucket, Untimed: true, Captured: true}
	d.comms[7] = &comm{}
	d.sample(&sample)
	for id := range uint64(2 * capturedComms) {
		s := sample
		s.CommID = 1000 + id
		d.sample(&s)
	}
	if n := len(d.captured); n > capturedComms {
		t.Errorf("%d communicators are kept", n)
	}
	d.comms[8], sample.CommID = &comm{}, 8
	d.sample(&sample)
	for id := tuner.CommID(7); id <= 8; id++ {
		if got := d.captured[id][captured{bucket, actions.Default}]; got != 1 {
			t.Errorf("communicator %d, which is there, has %d captured calls, want 1", id, got)
		}
		delete(d.comms, id)
	}
}

// A default that nothing measured speaks for is not supported, but where the user wants it.
func TestCapturedViews(t *testing.T) {
	at := func(c actions.Collective, bytes uint64) state.Bucket {
		b, _ := state.BucketOf(c, bytes)
		return b
	}
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.LL}
	counts := map[captured]uint64{{at(actions.AllReduce, 1024), actions.Default}: 7, {at(actions.AllReduce, 1024), ring}: 8,
		{at(actions.AllGather, 4096), actions.Default}: 4, {at(actions.AllReduce, 64), actions.Default}: 1}
	measured := map[state.Bucket]bool{at(actions.AllReduce, 64): true}
	for _, fixed := range []bool{false, true} {
		want := []control.CapturedView{
			{Bucket: at(actions.AllGather, 4096), Action: actions.Default, Calls: 1, Supported: false},
			{Bucket: at(actions.AllReduce, 64), Action: actions.Default, Calls: 1, Supported: true},
			{Bucket: at(actions.AllReduce, 1024), Action: actions.Default, Calls: 2, Supported: fixed},
			{Bucket: at(actions.AllReduce, 1024), Action: ring, Calls: 2, Supported: true},
		}
		if got := capturedViews(counts, 4, measured, fixed); !slices.Equal(got, want) {
			t.Errorf("fixed %t: %+v", fixed, got)
		}
	}
}
