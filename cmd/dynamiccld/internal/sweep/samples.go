package sweep

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/csvfile"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/cmd/dynamiccld/internal/sampled"
	"dynamiccl/cmd/internal/wholefile"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Columns of the raw samples. rankEventUs is the median that CUDA events gave on the sample's rank, eventUs the largest
// of all ranks, both of one call, while no call was watched.
var sampleColumns = []string{"round", "nth", "collective", "bytes", "action", "ran", "rank", "seq", "startNs", "clockNs", "recvNs", "counterNs",
	"signalNs", "flags", "rankEventUs", "eventUs"}

// quietFor is how long no sample may come before all are taken to be there: kernel times are told late by NCCL's threads, events within microseconds.
const quietFor = 100 * time.Millisecond

// writeSamples appends what the ranks told of the point that was just measured.
func (s *session) writeSamples(ctx context.Context, collective string, size uint64, a actions.Action, version uint32, p *Point) error {
	for n := -1; n != len(s.Seen) && ctx.Err() == nil; {
		n = len(s.Seen)
		time.Sleep(quietFor)
		s.Drain()
	}
	if err := ctx.Err(); err != nil { // not all have come
		return err
	}
	// What a rank told late is of the point before, which had another plan.
	s.Seen = slices.DeleteFunc(s.Seen, func(x nccltuner.Sample) bool { return version != 0 && x.PlanVersion != version })
	if err := s.Want(forced.WantRan); err != nil {
		return err
	}
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	head := []string{strconv.Itoa(p.Round), strconv.Itoa(p.Nth), collective, strconv.FormatUint(size, 10), a.String()}
	bucket, tuned := s.Bucket(collective, size)
	s.cost(bucket, p)
	for i := range s.Seen {
		if x := &s.Seen[i]; tuned && x.Bucket == bucket && !x.Untimed && int(x.Rank) < len(p.RankUs) {
			_ = w.Write(append(head[:len(head):len(head)], sampleFields(x, p)...)) // into memory
		}
	}
	w.Flush()
	s.Seen = s.Seen[:0]
	f, err := os.OpenFile(s.o.Samples, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	before, _ := f.Seek(0, io.SeekEnd)
	if _, err = f.Write(b.Bytes()); err != nil {
		_ = f.Truncate(before) // the point is measured again, with all of its samples
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w; make room and run the same command again", s.o.Samples, err)
	}
	return nil
}

// cost puts the samples of all ranks together as the daemon does: what it would have charged the choice.
func (s *session) cost(bucket state.Bucket, p *Point) {
	// Rings were read one after the other: a rank's last call would come before another one's first.
	slices.SortStableFunc(s.Seen, func(a, b nccltuner.Sample) int { return cmp.Compare(a.Seq, b.Seq) })
	var us []float64
	var e tuner.Sample
	for i := range s.Seen {
		if !sampled.Event(&s.Seen[i], &e) {
			continue
		}
		if o, ok := s.groups.Add(&e); ok && e.Bucket == bucket {
			us = append(us, float64(o.SignalNs)/1e3)
		}
	}
	if p.SampledCalls = len(us); len(us) > 0 {
		p.SampledUs = forced.Median(us)
	}
}

func sampleFields(x *nccltuner.Sample, p *Point) []string {
	ran := "-"
	if x.Ran != actions.Default {
		ran = x.Ran.String()
	}
	us := func(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }
	ns := func(v state.Ns) string { return strconv.FormatInt(int64(v), 10) }
	return []string{ran, strconv.Itoa(int(x.Rank)), strconv.FormatUint(x.Seq, 10), strconv.FormatUint(x.StartNs, 10),
		strconv.FormatInt(x.ClockNs, 10), strconv.FormatInt(x.RecvNs, 10), ns(x.CounterNs), ns(x.SignalNs), strconv.Itoa(sampleFlags(x)), us(p.RankUs[x.Rank]), us(p.MedianUs)}
}

// sampleFlags gives the bits of dyn_sample.flags.
func sampleFlags(x *nccltuner.Sample) (flags int) {
	for _, f := range []struct {
		set bool
		bit int
	}{{x.Aggregated, nccltuner.SampleAggregated}, {x.Unjoined, nccltuner.SampleUnjoined}, {x.HostTimed, nccltuner.SampleHostTimed},
		{x.Untimed, nccltuner.SampleUntimed}, {x.Captured, nccltuner.SampleCaptured},
		{x.EventTimed, nccltuner.SampleEventTimed}, {x.Ran.Path == actions.PathLSA, nccltuner.SampleLsa},
		{x.Ran.Path == actions.PathGIN, nccltuner.SampleGin}} {
		if f.set {
			flags |= f.bit
		}
	}
	return flags
}

// startSamples makes the file with its header, unless it is there. Of another file nothing is written over, and nothing appended to it.
func startSamples(path string, anew bool) error {
	if _, err := wholefile.Target(path); err != nil {
		return fmt.Errorf("--samples: %w", err)
	}
	if anew {
		return wholefile.Write(path, []byte(strings.Join(sampleColumns, ",")+"\n"))
	}
	f, headed, err := csvfile.Open(path, sampleColumns, 0o644)
	switch {
	case errors.As(err, new(*fs.PathError)):
		return fmt.Errorf("--samples: %w; name a file that you may write, in a folder that exists", err)
	case err != nil:
		return fmt.Errorf("--samples %s: %w; name another file, or move this one away", path, err)
	}
	if err := f.Close(); err != nil || !headed {
		return fmt.Errorf("--samples %s: %w; make room and run the same command again", path, cmp.Or(err, error(unix.ENOSPC)))
	}
	return nil
}
