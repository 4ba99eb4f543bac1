package tuner

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/internal/testrecord"
	"dynamiccl/state"
)

// liveCall is one timed call of a live program over one context: what both ranks told of it.
type liveCall struct {
	atNs    state.Ns
	context uint8
	bytes   uint64
	action  actions.Action
	took    [2]liveTook
}

type liveTook struct{ counterNs, signalNs state.Ns }

func (c *liveCall) like(o *liveCall) bool {
	return c.context == o.context && c.bytes == o.bytes && c.action == o.action
}

// realNoise has recorded tables of puts (PROVENANCE.md there).
const realNoise = "../agents/testdata/realnoise/"

// recordedPut gives a row's numbers, and its action, which stands in one of the columns.
func recordedPut(t testing.TB, row []string, actionAt int) ([]int64, actions.Action) {
	t.Helper()
	n := make([]int64, len(row))
	for i := range n {
		if i != actionAt {
			n[i] = testrecord.Number(t, row[i])
		}
	}
	action, err := actions.Parse("gin/gdaki/" + row[actionAt])
	if err != nil {
		t.Fatal(err)
	}
	return n, action
}

// readLiveCalls reads a table of agents/testdata/realnoise (PROVENANCE.md there).
func readLiveCalls(t *testing.T, name string) (all []liveCall) {
	t.Helper()
	waits := map[string][]liveCall{} // for the other rank's word
	for _, r := range testrecord.Rows(t, realNoise+name) {
		n, action := recordedPut(t, r, 4)
		rank := n[1]
		key := r[2] + " " + r[3] + " " + r[4] + " " + r[6]
		took := liveTook{state.Ns(n[5]), state.Ns(n[6])}
		if other := waits[key+" "+strconv.FormatInt(1-rank, 10)]; len(other) > 0 {
			c := other[0]
			waits[key+" "+strconv.FormatInt(1-rank, 10)] = other[1:]
			c.took[rank] = took
			all = append(all, c)
			continue
		}
		c := liveCall{atNs: state.Ns(1000 * n[0]), context: uint8(n[2]), bytes: uint64(n[3]), action: action}
		c.took[rank] = took
		mine := key + " " + r[1]
		waits[mine] = append(waits[mine], c)
	}
	slices.SortStableFunc(all, func(a, b liveCall) int { return int(a.atNs - b.atNs) })
	return all
}

const (
	recordedPhaseNs = state.Ns(25e9)
	playedPhaseNs   = state.Ns(10e9)
)

// livePlayer plays the first ten seconds of each phase of a recording to a core, and says what each way's diagnosis is at the end of
// each. The recording has one call in 256. Where the plan has puts timed closely each stands for 16, and the others are drawn from all
// that the phase has of its kind.
type livePlayer struct {
	core   *Core
	rng    *rand.Rand
	all    []liveCall
	number uint32
	closer bool
	never  bool     // the plan's word does not reach the ranks
	onNs   state.Ns // puts were timed closely
}

func (p *livePlayer) step(nowNs state.Ns, e Event) {
	for _, plan := range p.core.Step(nowNs, e).Plans {
		p.closer = plan.Closely && !p.never
	}
}

func (p *livePlayer) tell(nowNs state.Ns, c *liveCall) {
	p.number++
	for rank := range int32(2) {
		p.step(nowNs, &Trip{Comm: 1, Number: p.number, Rank: rank, Peer: 1 - rank, Context: c.context, Action: c.action, Bytes: c.bytes,
			CounterNs: c.took[rank].counterNs, SignalNs: c.took[rank].signalNs})
	}
}

// more tells of 15 calls like c: what its kind takes in the middle, as often as far from it as puts of the phase are. Of a kind that
// the phase has once or twice nobody knows.
func (p *livePlayer) more(nowNs state.Ns, phase []liveCall, c *liveCall) {
	const known, own = 3, 16
	like := slices.DeleteFunc(slices.Clone(phase), func(o liveCall) bool { return !c.like(&o) })
	if len(like) < known {
		return
	}
	middle := middleTook(like)
	for range 15 {
		from := like[p.rng.IntN(len(like))]
		scale := middle
		if len(like) < own {
			from = phase[p.rng.IntN(len(phase))]
			others := slices.DeleteFunc(slices.Clone(phase), func(o liveCall) bool { return !from.like(&o) })
			if len(others) < own {
				from, scale = *c, middle
				from.took = middle
			} else {
				scale = middleTook(others)
			}
		}
		d := *c
		for rank := range d.took {
			d.took[rank].signalNs = middle[rank].signalNs * from.took[rank].signalNs / scale[rank].signalNs
			if scale[rank].counterNs > 0 {
				d.took[rank].counterNs = middle[rank].counterNs * from.took[rank].counterNs / scale[rank].counterNs
			}
		}
		p.tell(nowNs, &d)
	}
}

// middleTook gives what both ranks' puts take in the middle.
func middleTook(calls []liveCall) (m [2]liveTook) {
	for rank := range m {
		var counters, signals []state.Ns
		for i := range calls {
			counters, signals = append(counters, calls[i].took[rank].counterNs), append(signals, calls[i].took[rank].signalNs)
		}
		slices.Sort(counters)
		slices.Sort(signals)
		m[rank] = liveTook{counters[len(counters)/2], signals[len(signals)/2]}
	}
	return m
}

func (p *livePlayer) play(phases int) (said []map[agents.Diagnosis]int) {
	const tickNs = state.Ns(250e6)
	for phase := range phases {
		begin := state.Ns(phase) * recordedPhaseNs
		of := slices.DeleteFunc(slices.Clone(p.all), func(c liveCall) bool { return c.atNs < begin || c.atNs >= begin+recordedPhaseNs })
		next := 0
		for at := state.Ns(0); at < playedPhaseNs; at += tickNs {
			nowNs := 1e9 + state.Ns(phase)*playedPhaseNs + at
			if p.closer {
				p.onNs += tickNs
			}
			for closely := p.closer; next < len(of) && of[next].atNs < begin+at+tickNs; next++ {
				p.tell(nowNs, &of[next])
				if closely {
					p.more(nowNs, of, &of[next])
				}
			}
			p.step(nowNs, Tick{})
		}
		n := map[agents.Diagnosis]int{}
		for _, l := range p.core.LinksOf(1) {
			n[l.Verdict.Diagnosis]++
		}
		said = append(said, n)
	}
	return said
}

// Ten seconds of each of four conditions, as programs have them live: links as they are, each put 1.3 us late, links of 0.2 GB/s, and
// as they were. With one call in 256 timed that is some thirty puts of a way, which do not tell; a program leaves links of 0.2 GB/s
// within a few calls. Where the plan's word that puts are to be timed closely does not reach the ranks, it has to show.
func TestDiagnosesInTenSeconds(t *testing.T) {
	want := [4]agents.Diagnosis{agents.DiagnosisNone, agents.DiagnosisBackendFallback, agents.DiagnosisCongestion, agents.DiagnosisRecovered}
	for _, never := range []bool{false, true} {
		var said [len(want)]map[agents.Diagnosis]int
		ways, onNs := 0, state.Ns(0)
		for _, name := range []string{"gin-live.csv.gz", "gin-live-2.csv.gz"} {
			all := readLiveCalls(t, name)
			for seed := range uint64(5) {
				core := coreOf(t, agents.NameUCB, Config{}, CommJoined{Shape: state.Shape{Ranks: 2, Nodes: 2}})
				p := &livePlayer{core: core, rng: rand.New(rand.NewPCG(seed, 3)), all: all, never: never}
				for i, n := range p.play(len(want)) {
					if said[i] == nil {
						said[i] = map[agents.Diagnosis]int{}
					}
					for d, k := range n {
						said[i][d] += k
					}
				}
				ways += len(core.LinksOf(1))
				onNs += p.onNs
			}
		}
		t.Logf("%d ways, timed closely for %d s of %d, said %v", ways, onNs/1e9, 10*state.Ns(len(want))*playedPhaseNs/1e9, said)
		right := 0
		for i, d := range want {
			if 100*said[i][d] >= 95*ways {
				right++
			} else if !never {
				t.Errorf("phase %d: %s is said of %d of %d ways", i, d, said[i][d], ways)
			}
		}
		if never && right > 2 { // that nothing is wrong, before and again
			t.Errorf("%d of %d phases are told as well by one call in 256", right, len(want))
		}
	}
}

// However often there is a reason, and however fast calls come: answers take no more of the time than they may, ranks are told anew
// before they stop by themselves, and where there is no reason any more it ends.
func TestTimingCloselyIsBounded(t *testing.T) {
	for _, callNs := range []state.Ns{12_000, 100_000, 5e6} {
		var c closer
		nowNs, said, onNs, toldNs := state.Ns(1e9), 0, state.Ns(0), state.Ns(0)
		const spanNs, tickNs = state.Ns(120e9), state.Ns(40e6)
		beganNs := nowNs
		for number := uint32(0); nowNs < beganNs+spanNs; nowNs += tickNs {
			c.wantNs = nowNs
			if c.look(nowNs) {
				said++
				toldNs = nowNs
			}
			if !c.on {
				continue
			}
			onNs += tickNs
			if nowNs-toldNs > closeAgain+tickNs {
				t.Fatalf("calls of %d us: %d ms without a word", callNs/1000, (nowNs-toldNs)/1e6)
			}
			for range tickNs / callNs / 16 {
				for range 3 { // ways
					c.heard(&Trip{Number: number})
				}
				number += 16
			}
		}
		calls := float64(onNs/callNs) / 16
		share := calls * float64(answerNs) / float64(spanNs)
		most := closeShare + float64(closeMost)/float64(spanNs)
		t.Logf("calls of %d us: closely for %d s of %d, said %d times, answers %.2f%%", callNs/1000, onNs/1e9, spanNs/1e9, said, 100*share)
		if share > 1.1*most || onNs == 0 {
			t.Errorf("calls of %d us: answers take %.2f%%", callNs/1000, 100*share)
		}
		if c.look(nowNs+closeHold+1) && c.on || c.on {
			t.Errorf("calls of %d us: it goes on without a reason", callNs/1000)
		}
	}
}
