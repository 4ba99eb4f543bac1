package agents

import (
	"math/rand/v2"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/internal/testrecord"
	"dynamiccl/state"
)

// liveWay is a rank's way to the other one over a context.
type liveWay struct{ rank, context uint8 }

type livePut struct {
	way liveWay
	o   state.Observation
}

// readGinLive reads what puts of a live program took.
func readGinLive(t testing.TB, name string) (all []livePut) {
	t.Helper()
	number := func(s string) int64 { return testrecord.Number(t, s) }
	for _, r := range testrecord.Rows(t, realNoise+name) {
		a, err := actions.Parse("gin/gdaki/" + r[4])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, livePut{liveWay{uint8(number(r[1])), uint8(number(r[2]))}, state.Observation{AtNs: state.Ns(1000 * number(r[0])), Action: a,
			Bytes: uint64(number(r[3])), CounterNs: state.Ns(number(r[5])), SignalNs: state.Ns(number(r[6]))}})
	}
	return all
}

// What a program's puts tell while links change under it: for 25 s as they are, then each put 1.3 us late, then links of 0.2 GB/s, then
// as they were. Each way has a put or two a second of each size, over several numbers of CTAs and contexts, and all 40 detectors see
// the change at once: what each adds to what all know of noise must not teach them that it is noise. Besides the series itself, it
// is played with each put left out that chance says, one in five.
func TestDiagnosesLivePuts(t *testing.T) {
	for _, name := range []string{"gin-live.csv.gz", "gin-live-2.csv.gz"} {
		t.Run(name, func(t *testing.T) { diagnosesLivePuts(t, readGinLive(t, name)) })
	}
}

func diagnosesLivePuts(t *testing.T, all []livePut) {
	const phaseNs = state.Ns(25e9)
	var said [4]map[Diagnosis]int // at the end of each phase
	ways := 0
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var noise FabricNoise
		watches, verdicts := map[liveWay]*ginWatch{}, map[liveWay]Diagnosis{}
		phase := state.Ns(0)
		end := func() {
			if said[phase] == nil {
				said[phase] = map[Diagnosis]int{}
			}
			for _, d := range verdicts {
				said[phase][d]++
			}
			phase++
		}
		for _, p := range all {
			for p.o.AtNs/phaseNs > phase {
				end()
			}
			if seed > 0 && rng.IntN(5) == 0 {
				continue
			}
			w := watches[p.way]
			if w == nil {
				w = newGinWatch(mustDesign(t))
				w.noise = &noise
				watches[p.way] = w
			}
			_, v := w.observe(p.o)
			verdicts[p.way] = v.Diagnosis
		}
		end()
		ways += len(watches)
	}
	t.Logf("%d ways, said %v", ways, said)
	if said[0][DiagnosisNone] != ways {
		t.Errorf("as links are, %d of %d say nothing", said[0][DiagnosisNone], ways)
	}
	if right := said[1][DiagnosisBackendFallback]; right*100 < 95*ways {
		t.Errorf("1.3 us more are called so on %d of %d", right, ways)
	}
	if right := said[3][DiagnosisRecovered]; right*100 < 90*ways {
		t.Errorf("that all is as it was is said of %d of %d", right, ways)
	}
}
