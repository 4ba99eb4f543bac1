package harnesstest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/nccltuner"
	"dynamiccl/nccltuner/ranklog"
	"dynamiccl/state"
)

// stubDaemon publishes random plans as fast as it may and reads samples: what agreement must survive, not what tunes.
type stubDaemon struct {
	t          *testing.T
	dir        *nccltuner.Dir
	scanner    *nccltuner.Scanner
	rng        *rand.Rand
	publishers []*nccltuner.Publisher
	records    []*nccltuner.Record
	rings      []*nccltuner.Ring
	nextID     uint32
	published  int
	samples    map[sampleKey]nccltuner.Sample
	twice      int
	buffer     []nccltuner.Sample
}

// checkedCalls bounds the samples that are kept and compared; choices are compared to the last call.
const checkedCalls = 1 << 15

type sampleKey struct {
	rank int32
	seq  uint64
}

func newStubDaemon(t *testing.T, path string, seed uint64) *stubDaemon {
	t.Helper()
	dir, err := nccltuner.OpenDir(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Lock(); err != nil {
		t.Fatal(err)
	}
	return &stubDaemon{t: t, dir: dir, scanner: nccltuner.NewScanner(dir), rng: rand.New(rand.NewPCG(seed, 3)),
		samples: map[sampleKey]nccltuner.Sample{}, buffer: make([]nccltuner.Sample, 4096)}
}

func (d *stubDaemon) close() {
	if err := errors.Join(d.scanner.Close(), d.dir.Close()); err != nil {
		d.t.Error(err)
	}
}

// action is random; some of them NCCL marks -1 for AllGather and ReduceScatter, which ranks must not run.
func (d *stubDaemon) action() uint32 {
	if d.rng.IntN(4) == 0 {
		return actions.Default.Word()
	}
	a := actions.Action{Path: actions.PathCollective, Algorithm: actions.Algorithm(d.rng.IntN(2)),
		Protocol: actions.Protocol(d.rng.IntN(3)), Channels: []uint8{0, 1, 4, 8, 32}[d.rng.IntN(5)]}
	return a.Word()
}

func (d *stubDaemon) plan(sizes []int) *nccltuner.PlanSpec {
	spec := &nccltuner.PlanSpec{SampleEvery: 1}
	for _, c := range []actions.Collective{actions.AllGather, actions.ReduceScatter, actions.AllReduce} {
		for _, bytes := range sizes {
			bucket, _ := state.BucketOf(c, uint64(bytes))
			d.nextID++
			e := nccltuner.EntrySpec{Bucket: bucket, ID: d.nextID, Base: d.action()}
			for range d.rng.IntN(nccltuner.NumTrials + 1) {
				e.Trials = append(e.Trials, d.action())
			}
			spec.Entries = append(spec.Entries, e)
		}
	}
	return spec
}

// turn does all that a daemon does once.
func (d *stubDaemon) turn(sizes []int) {
	var c nccltuner.Changes
	if err := d.scanner.Scan(&c); err != nil {
		d.t.Fatal(err)
	}
	for _, err := range c.Rejected {
		d.t.Errorf("scan: %v", err)
	}
	for _, r := range c.Records {
		p, err := nccltuner.NewPublisher(r)
		if err != nil {
			d.t.Fatal(err)
		}
		d.publishers, d.records = append(d.publishers, p), append(d.records, r)
	}
	for _, r := range c.Rings {
		if err := r.SetWantMask(maskColl | maskKernelCh); err != nil {
			d.t.Fatal(err)
		}
		d.rings = append(d.rings, r)
	}
	for i, p := range d.publishers {
		_, err := p.Publish(d.plan(sizes))
		if err == nil {
			d.published++
		} else if !errors.Is(err, nccltuner.ErrNoFreeBuffer) && !errors.Is(err, nccltuner.ErrClosed) {
			d.t.Errorf("publish: %v", err)
		}
		_ = d.records[i].Beat() // a record that has gone is no news here
	}
	d.drain()
}

func (d *stubDaemon) drain() {
	for _, r := range d.rings {
		_ = r.Beat()
		for {
			n, err := r.Drain(d.buffer)
			for _, s := range d.buffer[:n] {
				key := sampleKey{s.Rank, s.Seq}
				if s.Seq >= checkedCalls {
					continue
				}
				if _, ok := d.samples[key]; ok && !s.Unjoined && !s.Aggregated {
					d.twice++
				}
				if !s.Unjoined {
					d.samples[key] = s
				}
			}
			if err != nil && !errors.Is(err, nccltuner.ErrClosed) {
				d.t.Errorf("drain: %v", err)
			}
			if n < len(d.buffer) {
				break
			}
		}
	}
}

// Plans change under 8 ranks at full speed, ranks stall at random: all run the same, and every sample says what ran and
// takes what the table says.
func TestAgreementWhilePlansChange(t *testing.T) {
	seed := testSeed(t)
	for _, how := range []string{"--spawn", "--threads=8"} {
		env, dir := pluginEnv(t)
		env = append(env, "NCCL_ALLGATHERV_ENABLE=0") // numbers of channels are answered about an AllGather, too
		log := filepath.Join(t.TempDir(), "r%r.log")
		calls := "20000"
		if os.Getenv("DYN_LONG") == "1" {
			calls = "1000000"
		}
		d := newStubDaemon(t, dir, seed)
		var out strings.Builder
		cmd := command(t, env, how, "--table", oneNode.write(t), "--calls", calls, "--seed", fmt.Sprint(seed), "--stall", "0.002,500",
			"--noise", "0", "--skew", "1", "--log", log, "--require-plugin", "--rate", "8000") // 2.5 s: a busy machine lets 19 plans be published a second
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		for running := true; running; {
			select {
			case err := <-done:
				if err != nil {
					t.Fatalf("%s: %v\n%s", how, err, &out)
				}
				running = false
			default:
				d.turn(oneNode.sizes)
				time.Sleep(500 * time.Microsecond)
			}
		}
		d.drain()
		rep := compare(t, strings.Replace(log, "%r", "%d", 1), 8)
		if rep.Compared != rep.Calls || rep.Chosen == 0 || rep.Chosen == rep.Calls || d.published < 20 {
			t.Errorf("%s: %d calls, %d compared, %d chosen, %d plans", how, rep.Calls, rep.Compared, rep.Chosen, d.published)
		}
		checked := d.check(strings.Replace(log, "%r", "%d", 1))
		t.Logf("%s: %d calls, %d chosen, %d plans, %d samples checked", how, rep.Calls, rep.Chosen, d.published, checked)
		if checked < 1000 || d.twice != 0 {
			t.Errorf("%s: %d samples checked, %d calls sampled twice", how, checked, d.twice)
		}
		d.close()
	}
}

// check compares samples with the logs: the same choice ran, and no rank's kernel was shorter than the choice costs.
func (d *stubDaemon) check(pattern string) int {
	checked, wrong := 0, 0
	for rank := range oneNode.ranks {
		f, err := os.Open(fmt.Sprintf(pattern, rank))
		if err != nil {
			d.t.Fatal(err)
		}
		dec, err := ranklog.NewDecoder(f)
		if err != nil {
			d.t.Fatal(err)
		}
		for {
			rec, err := dec.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				d.t.Fatal(err)
			}
			s, ok := d.samples[sampleKey{int32(rank), uint64(rec.Seq)}]
			if !ok || wrong > 5 {
				continue
			}
			checked++
			ran := actions.Action{Path: actions.PathCollective, Algorithm: rec.Algorithm, Protocol: rec.Protocol, Channels: rec.Channels}
			asked := s.Action.Path == actions.PathDefault || s.Action.Algorithm == rec.Algorithm && s.Action.Protocol == rec.Protocol &&
				(s.Action.Channels == 0 || s.Action.Channels == rec.MaxChannels)
			// 1e6 ns: skews of eight ranks are exponential with a mean of 1 us.
			if s.Bytes != rec.Bytes || s.Ran != ran || !asked || (s.Action.Path != actions.PathDefault) != rec.Chosen ||
				int64(s.SignalNs) < int64(rec.CostNs)-launchNs-2 || int64(s.SignalNs) > int64(rec.CostNs)+1e6 {
				wrong++
				d.t.Errorf("rank %d call %d: sample %+v, log %+v", rank, rec.Seq, s, rec)
			}
		}
		if err := f.Close(); err != nil {
			d.t.Fatal(err)
		}
	}
	return checked
}
