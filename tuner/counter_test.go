package tuner

import (
	"math"
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

// kernelCall is what one call of our kernels takes on every rank by its events, in nanoseconds: until it is over and until it has sent all.
type kernelCall struct{ signal, counter float64 }

// diagnosed plays calls of two sizes, run by our kernels on four ranks, before and after something changed, and gives what was found.
func diagnosed(t *testing.T, seed uint64, before, after [2]kernelCall) map[agents.Diagnosis]int {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 7))
	oneShot := parse(t, "lsa/oneshot/4")[0]
	buckets := [2]state.Bucket{{Collective: actions.AllReduce, Log2Bytes: 10}, {Collective: actions.AllReduce, Log2Bytes: 16}}
	core := kernelCore(t, Config{}, CommJoined{EventTimed: true})
	for _, b := range buckets {
		core.Step(1, Marks{Comm: 1, Bucket: b, Set: 0b001_000 | MarkOneShot})
	}
	found := map[agents.Diagnosis]int{}
	for seq := range uint64(1200) {
		i, calls := seq%2, before
		if seq >= 800 {
			calls = after
		}
		noise := math.Exp(0.02 * rng.NormFloat64())
		for r := range int32(4) {
			at := 1_000_000_000 + 100_000*seq
			s := &Sample{Comm: 1, Seq: seq, Rank: r, Bucket: buckets[i], Bytes: 1 << buckets[i].Log2Bytes, Action: oneShot, Ran: oneShot, StartNs: at, ClockNs: 7,
				SignalNs: state.Ns(calls[i].signal * noise), CounterNs: state.Ns(calls[i].counter * noise), RecvNs: int64(at) - 50_000, EventTimed: true, Made: uint16(seq / 2)}
			for _, f := range core.Step(state.Ns(100_000*seq), s).Findings {
				if seq >= 800 {
					found[f.Diagnosis]++
				}
			}
		}
	}
	return found
}

// With what our kernels tell of their sends, what became longer at the receiver is told from what became longer here. Where a counter is the
// signal again, it never is.
func TestRemoteSideOfKernels(t *testing.T) {
	usual := [2]kernelCall{{9_000, 7_000}, {22_000, 13_000}}
	remote := [2]kernelCall{{15_000, 7_000}, {36_000, 13_000}}
	local := [2]kernelCall{{15_000, 13_000}, {28_000, 19_000}}
	blind := func(calls [2]kernelCall) [2]kernelCall {
		for i := range calls {
			calls[i].counter = calls[i].signal
		}
		return calls
	}
	for seed := range uint64(20) {
		if f := diagnosed(t, seed, usual, remote); f[agents.DiagnosisRemoteSide] == 0 || f[agents.DiagnosisBackendFallback]+f[agents.DiagnosisCongestion] > 0 {
			t.Errorf("seed %d: the receiver is slower: %v", seed, f)
		}
		if f := diagnosed(t, seed, usual, local); f[agents.DiagnosisRemoteSide] > 0 || f[agents.DiagnosisBackendFallback] == 0 {
			t.Errorf("seed %d: this rank is slower: %v", seed, f)
		}
		if f := diagnosed(t, seed, blind(usual), blind(remote)); f[agents.DiagnosisRemoteSide] > 0 || len(f) == 0 {
			t.Errorf("seed %d: the receiver is slower, and kernels do not tell: %v", seed, f)
		}
	}
}

// What a stream waits for its host comes off counter and signal alike; a counter that would lie before the call was issued is none.
func TestCounterLeavesOutTheHost(t *testing.T) {
	for _, c := range []struct {
		issued        int64
		counter, want state.Ns
		wantSignal    state.Ns
	}{
		{-300_000, 30_000, 25_150, 45_150}, {10_000, 30_000, 15_150, 35_150}, {31_000, 30_000, 0, 14_150}, {10_000, 0, 0, 35_150},
		{10_000, 50_000, 35_150, 35_150}, // of NCCL's
	} {
		j := joiner{heard: allRanks(1)}
		var o state.Observation
		for seq := range uint64(clockMinimum) {
			at := 1_000_000_000 + 1_000_000*int64(seq)
			o, _, _ = j.add(0, &Sample{Seq: seq, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}, ClockNs: 1, EventTimed: true, Ran: parse(t, "lsa/oneshot/4")[0],
				StartNs: uint64(at), SignalNs: 50_000, CounterNs: c.counter, RecvNs: at + 1 + c.issued})
		}
		if o.CounterNs != c.want || o.SignalNs != c.wantSignal {
			t.Errorf("%+v: %+v", c, o)
		}
	}
}

// Learners compare shares of counter in signal with that of NCCL's default, which has none: to them our kernels' is none, either.
func TestCounterAsLearned(t *testing.T) {
	kernel, ring := parse(t, "lsa/oneshot/4")[0], parse(t, "Ring/LL/2")[0]
	for _, c := range []struct {
		ran           actions.Action
		counter, want state.Ns
	}{{kernel, 3, 9}, {kernel, 0, 0}, {ring, 3, 3}, {actions.Default, 3, 3}} {
		if got := asLearned(state.Observation{Ran: c.ran, SignalNs: 9, CounterNs: c.counter}).CounterNs; got != c.want {
			t.Errorf("%v with %d of 9: %d, want %d", c.ran, c.counter, got, c.want)
		}
	}
}
