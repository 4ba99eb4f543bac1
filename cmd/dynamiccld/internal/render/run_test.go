package render

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/state"
)

// bucket is a size of AllReduce on 4 ranks.
func bucket(log2 uint8, choice string, speedUp float64, l *control.Ledger) control.Bucket {
	return control.Bucket{Ranks: 4, Nodes: 1, Collective: "AllReduce", MinBytes: 1 << log2, Choice: choice, SpeedUp: speedUp,
		SpeedUpLow: speedUp - 0.1, SpeedUpHigh: speedUp + 0.1, Calls: 10, Ledger: l,
		Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: log2}}
}

func tuned(buckets ...control.Bucket) control.RunComm {
	return control.RunComm{CommStatus: control.CommStatus{Active: true, Calls: 5000}, Buckets: buckets}
}

func say(t *testing.T, r control.RunReport) string {
	t.Helper()
	var b strings.Builder
	if err := Run(&b, r); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "%!") || strings.Contains(b.String(), "NaN") {
		t.Errorf("%s", b.String())
	}
	return b.String()
}

func TestRunSaysWhyNothing(t *testing.T) {
	for want, r := range map[string]control.RunReport{
		"no communicator joined: the command made none": {},
		"no communicator of this run joined, and 2 communicators came from processes that do not have its variables; Ray, ssh launchers and containers": {Strays: 2},
		"the run of another rank reports":   {Elsewhere: 1},
		"NCCL_ALGO is set on a rank":        {Comms: []control.RunComm{{CommStatus: control.CommStatus{Why: "NCCL_ALGO is set on a rank"}}}},
		"too few calls were measured":       {Comms: []control.RunComm{tuned(bucket(10, "default", 1, nil))}},
		"nothing tried is better than NCCL": {Comms: []control.RunComm{tuned(bucket(10, "default", 1, &control.Ledger{Calls: 9, DefaultNs: 9e4}))}},
	} {
		if got := say(t, r); !strings.Contains(got, want) || strings.Count(got, "\n") != 1 {
			t.Errorf("want one line with %q, got\n%s", want, got)
		}
	}
}

// What is done for sockets is said also where nothing was tuned, as it happened and without a gain.
func TestRunSaysWhatWasDoneForSockets(t *testing.T) {
	for want, traffic := range map[string]*control.Traffic{
		"threads of ours moved 3 GiB of 4 GiB in messages of 64 KiB and more; 12 messages went in one packet with their size; what": {LongBytes: 4 << 30, MovedBytes: 3 << 30, Together: 12},
		"threads of ours moved 0 B of 1 MiB in messages of 64 KiB and more; what that gained is not known":                          {LongBytes: 1 << 20},
		"on this host: 7 messages went in one packet with their size; what":                                                         {Together: 7},
	} {
		got := say(t, control.RunReport{Traffic: traffic})
		if !strings.Contains(got, "dynamiccld: over sockets, on this host: ") || !strings.Contains(got, want) || strings.Count(got, "\n") != 2 {
			t.Errorf("want %q, got\n%s", want, got)
		}
	}
}

// What times mean is said where they are not the calls' own: also where they could not be told at all.
func TestRunSaysTheReward(t *testing.T) {
	b := bucket(24, "Ring/Simple/4", 1.2, &control.Ledger{Calls: 100, DefaultNs: 10e6, SavedNs: 2e6})
	if got := say(t, control.RunReport{Comms: []control.RunComm{tuned(b)}}); strings.Contains(got, "reward") {
		t.Errorf("a reward without need:\n%s", got)
	}
	b.Reward = "exposed"
	if got := say(t, control.RunReport{Comms: []control.RunComm{tuned(b)}}); !strings.Contains(got, "dynamiccld: reward exposed: times are what a call adds to") {
		t.Errorf("no reward:\n%s", got)
	}
	b.Choice, b.Ledger, b.Note = "default", nil, "no order in which calls come back"
	if got := say(t, control.RunReport{Comms: []control.RunComm{tuned(b)}}); !strings.Contains(got, "nothing was tuned: reward exposed: no order") {
		t.Errorf("no reason:\n%s", got)
	}
	var why strings.Builder
	if err := Why(&why, b, nil, time.Unix(0, 0)); err != nil || !strings.Contains(why.String(), "exposed: times are what a call adds") {
		t.Errorf("%v\n%s", err, why.String())
	}
}

// What went into CUDA graphs with nothing to go by is one line, at the end, whatever stands before it.
func TestRunSaysWhatGraphsHold(t *testing.T) {
	graphs := func(of string, supported bool, choice string, sizes ...uint64) (all []control.Captured) {
		for _, s := range sizes {
			all = append(all, control.Captured{Collective: of, MinBytes: s, Choice: choice, Calls: 64, Supported: supported})
		}
		return all
	}
	c, d := tuned(bucket(10, "Ring/LL", 2, &control.Ledger{Calls: 100, DefaultNs: 10e6, SavedNs: 4e6})), tuned()
	c.Captured = append(graphs("AllReduce", false, "default", 1024, 2048, 4096, 1<<20), graphs("AllGather", true, "default", 1024)...)
	d.Captured = append(graphs("AllGather", false, "default", 4096), append(graphs("AllReduce", false, "default", 2048), graphs("Reduce", false, "Ring/LL", 8)...)...)
	got := say(t, control.RunReport{Comms: []control.RunComm{c, d}})
	want := "dynamiccld: CUDA graphs hold NCCL's default where nothing was measured: AllGather 4 KiB, AllReduce 1 KiB to 4 KiB, AllReduce 1 MiB; measure first: dynamiccld calibrate\n"
	if !strings.HasSuffix(got, want) || !strings.Contains(got, "saved") {
		t.Errorf("got\n%s", got)
	}
	if got := say(t, control.RunReport{Comms: []control.RunComm{d}}); strings.Count(got, "\n") != 2 || !strings.Contains(got, "AllGather 4 KiB, AllReduce 2 KiB;") {
		t.Errorf("nothing tuned:\n%s", got)
	}
	d.Captured = append(d.Captured, graphs("AllGatherRegistered", false, "default", 8192, 4096)...)
	if got := say(t, control.RunReport{Comms: []control.RunComm{d}}); !strings.HasSuffix(got, ": AllGather 4 KiB, AllGatherRegistered 4 KiB to 8 KiB, AllReduce 2 KiB; measure first: dynamiccld calibrate --buffers all\n") {
		t.Errorf("on both kinds of buffers:\n%s", got)
	}
	d.Captured = append(graphs("AllReduceRegistered", false, "default", 65536), graphs("AllReduce", true, "default", 65536)...)
	if got := say(t, control.RunReport{Comms: []control.RunComm{d}}); !strings.HasSuffix(got, ": AllReduceRegistered 64 KiB; measure first: dynamiccld calibrate --buffers registered\n") {
		t.Errorf("on registered buffers:\n%s", got)
	}
	d.NCCLVersion = "2.28.9"
	if got := say(t, control.RunReport{Comms: []control.RunComm{c, d}}); !strings.HasSuffix(got, " --buffers all (NCCL 2.28.9; --nccl-lib FILE where the loader finds another)\n") {
		t.Errorf("a version:\n%s", got)
	}
	c.Captured = graphs("AllReduce", true, "default", 1024)
	if got := say(t, control.RunReport{Comms: []control.RunComm{c}}); strings.Contains(got, "graphs") {
		t.Errorf("all is measured:\n%s", got)
	}
}

// What our kernels took in graphs is said of each choice once, the most frequent first, also where nothing was tuned.
func TestRunSaysWhatReplaysTook(t *testing.T) {
	replay := func(bytes uint64, choice string, n uint64, signal, counter float64, changes uint64) control.Replay {
		r := control.Replay{Ranks: 4, Nodes: 1, Collective: "AllReduce", Bytes: bytes, Choice: choice, Replays: n, Signal: control.Latency{MedianNs: signal}, Changes: changes}
		if counter > 0 {
			r.Counter = &control.Latency{MedianNs: counter}
		}
		return r
	}
	c, d := tuned(), tuned()
	c.Replays = []control.Replay{replay(8192, "lsa/oneshot/4", 10, 3100, 1200, 0), replay(16384, "lsa/twoshot/16", 500, 4200, 0, 1)}
	d.Replays = []control.Replay{replay(8192, "lsa/oneshot/4", 700, 3300, 1300, 2)}
	got := say(t, control.RunReport{Comms: []control.RunComm{c, d}})
	lines := strings.Split(got, "\n")
	if len(lines) != 6 || strings.Join(strings.Fields(lines[3]), " ") != "AllReduce 8 KiB lsa/oneshot/4 710 3.30 us 1.30 us 2" ||
		strings.Join(strings.Fields(lines[4]), " ") != "AllReduce 16 KiB lsa/twoshot/16 500 4.20 us - 1" {
		t.Errorf("got\n%s", got)
	}
	for i := range uint64(2 * runRows) {
		c.Replays = append(c.Replays, replay(1<<20+i, "lsa/bulk/32", 1, 9000, 0, 0))
	}
	if got := say(t, control.RunReport{Comms: []control.RunComm{c}}); strings.Count(got, "\n") != runRows+4 || !strings.Contains(got, "and 26 choices that ran less often") {
		t.Errorf("got\n%s", got)
	}
}

func TestRunSaysWhatWasNotTimed(t *testing.T) {
	c := tuned(bucket(10, "Ring/LL", 2, &control.Ledger{Calls: 100, DefaultNs: 10e6, SavedNs: 4e6}))
	c.Why = "kernels are not timed"
	if got := say(t, control.RunReport{Comms: []control.RunComm{c}}); !strings.Contains(got, "a communicator was tuned in part: kernels are not timed\n") {
		t.Errorf("got\n%s", got)
	}
	c.Buckets = nil
	if got := say(t, control.RunReport{Comms: []control.RunComm{c}}); got != "dynamiccld: nothing was tuned: kernels are not timed\n" {
		t.Errorf("got %q", got)
	}
}

func TestRunTotals(t *testing.T) {
	won := bucket(10, "Ring/LL", 2, &control.Ledger{Calls: 100, DefaultNs: 10e6, SavedNs: 4e6, TrialNs: 1e6, Trials: 9})
	same := bucket(12, "default", 1, &control.Ledger{Calls: 100, DefaultNs: 10e6})
	got := say(t, control.RunReport{Comms: []control.RunComm{tuned(won, same)}})
	for _, want := range []string{"Ring/LL  2.00x     1.90x to 2.10x  100", "and 1 size that saved less or nothing",
		"in total 1.18x NCCL's default: 3.00 ms of 20.0 ms saved in 200 measured of 5000 calls, trying others cost 1.00 ms of it; 1 of 2 sizes faster"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	// The same size of several communicators is one row, with the choice of the busiest.
	busy := won
	busy.Choice, busy.Calls = "Tree/LL", 1000
	if got := say(t, control.RunReport{Comms: []control.RunComm{tuned(won), tuned(busy)}}); strings.Contains(got, "Ring/LL") ||
		!strings.Contains(got, "Tree/LL") || !strings.Contains(got, "6.00 ms of 20.0 ms saved in 200 measured of 10000 calls") {
		t.Errorf("merged:\n%s", got)
	}
	if won.Ledger.Calls != 100 {
		t.Error("the caller's ledger was added to")
	}
	// A loss is said as one.
	lost := bucket(10, "default", 1, &control.Ledger{Calls: 100, DefaultNs: 10e6, SavedNs: -1e6, TrialNs: 1e6, Trials: 9})
	if got := say(t, control.RunReport{Comms: []control.RunComm{tuned(lost)}}); !strings.Contains(got, "in total 0.833x NCCL's default: 2.00 ms lost on 10.0 ms") {
		t.Errorf("lost:\n%s", got)
	}
	stored := bucket(10, "Ring/LL", 1, nil)
	stored.Stored = 1.5
	got = say(t, control.RunReport{Comms: []control.RunComm{tuned(stored, same)}})
	if !strings.Contains(got, "1.50x     as stored") || !strings.Contains(got, "stored choices ran at 1 size;") {
		t.Errorf("stored:\n%s", got)
	}
}

func TestRunFitsAScreen(t *testing.T) {
	var all []control.Bucket
	for i := range uint8(40) {
		all = append(all, bucket(i+1, fmt.Sprintf("Ring/LL/%d", i), 1.5, &control.Ledger{Calls: 1, DefaultNs: 1e9, SavedNs: 1e6 * float64(i+1)}))
	}
	got := say(t, control.RunReport{Comms: []control.RunComm{tuned(all...)}})
	if n := strings.Count(got, "\n"); n > runRows+4 {
		t.Errorf("%d lines:\n%s", n, got)
	}
	if !strings.Contains(got, "Ring/LL/39 ") || strings.Contains(got, "Ring/LL/15 ") || !strings.Contains(got, "Ring/LL/16 ") || !strings.Contains(got, "and 16 sizes that saved less") {
		t.Errorf("not those that saved most:\n%s", got)
	}
}

// What another host's daemon tuned is reported there; a run here says so, and what it tuned itself.
func TestRunOfSeveralHosts(t *testing.T) {
	const elsewhere = "dynamiccld: communicators over several hosts were tuned by the daemon of their rank 0's host: the run there reports them\n"
	follower := control.RunComm{CommStatus: control.CommStatus{Follows: true, PlanAgreed: 7, Why: "the daemon of rank 0's host tunes it: plan 7 is in force", Calls: 9}}
	if got := say(t, control.RunReport{Comms: []control.RunComm{follower, follower}}); got != elsewhere {
		t.Errorf("%q", got)
	}
	b := bucket(24, "Ring/Simple/4", 1.2, &control.Ledger{Calls: 100, DefaultNs: 10e6, SavedNs: 2e6})
	if got := say(t, control.RunReport{Comms: []control.RunComm{tuned(b), follower}}); strings.Count(got, elsewhere) != 1 || !strings.Contains(got, "Ring/Simple/4") {
		t.Errorf("%q", got)
	}
	follower.PlanAgreed = 0
	if got := say(t, control.RunReport{Comms: []control.RunComm{follower}}); !strings.Contains(got, "nothing was tuned: no plan of the daemon of rank 0's host came into force") {
		t.Errorf("%q", got)
	}
}

// Which kernel an LL is, is said: that of several GPUs in a process is another one.
func TestSaysWhichKernel(t *testing.T) {
	for device, want := range map[bool]string{true: "Ring/LL (device)", false: "Ring/LL"} {
		b := bucket(12, "Ring/LL", 1.8, &control.Ledger{Calls: 9, DefaultNs: 9e4, SavedNs: 4e4})
		b.DeviceLL = device
		if got := say(t, control.RunReport{Comms: []control.RunComm{tuned(b)}}); !strings.Contains(got, want+"  ") {
			t.Errorf("device %v:\n%s", device, got)
		}
		var why strings.Builder
		if err := Why(&why, b, nil, time.Time{}); err != nil || strings.Contains(why.String(), "Ring/LL (NCCL's device kernel)") != device {
			t.Errorf("device %v, %v:\n%s", device, err, why.String())
		}
	}
}
