package train

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"gorgonia.org/tensor"

	"dynamiccl/agents"
	"dynamiccl/tuner/tunersim"
)

// actorOptions are those that episodes of ActorCritic are played with.
func actorOptions() agents.PolicyOptions {
	opt := agents.DefaultPolicyOptions()
	opt.Actor = agents.Actor{Optimism: optimism, Temperature: temperature}
	return opt
}

// chances are the probabilities that a decision was drawn with.
func chances(d agents.Decision) []float64 {
	ps, sum := make([]float64, len(d.Mean)), 0.0
	for a := range ps {
		ps[a] = math.Exp(hope(d, a) / temperature)
		sum += ps[a]
	}
	for a := range ps {
		ps[a] /= sum
	}
	return ps
}

// TestActorLoss compares the actor's part of the graph's loss with what follows from the recorded decisions alone, of
// which the batch holds some actions and the rest as sums.
func TestActorLoss(t *testing.T) {
	const choices = 6
	grid := []int{1, 2, 3, 5, 8, 13, 21, 34}
	rng := rand.New(rand.NewPCG(9, 1))
	w := testWeights(rng)
	seqs := played(t, w, actorOptions(), grid, 24, rng)
	g, err := newGraph(ActorCritic, len(seqs), choices, grid, tensor.Float64, false)
	if err != nil {
		t.Fatal(err)
	}
	letWeights(t, g, w)
	in := newInputs(len(seqs), choices, grid)
	in.fill(ActorCritic, seqs, grid, choices, rng)
	clear(in.weight) // the critic's
	letDouble(t, g, in)
	got := runGraph(t, g)

	var logs, gains []float64
	entropy, left := 0.0, 0
	for _, s := range seqs {
		for _, d := range s.decisions {
			if !d.Drawn || d.Taken < 0 {
				continue
			}
			ps := chances(d)
			value := 0.0
			for a, p := range ps {
				mean, _ := posterior(d, a)
				value -= p * mean
				if p > 0 {
					entropy -= p * math.Log(p)
				}
			}
			sum, weights := 0.0, 0.0
			for k := 0; k < returnCalls && d.Call+k < len(s.costs); k++ {
				sum += math.Pow(discount, float64(k)) * min(maxTruth, max(minTruth, s.costs[d.Call+k]))
				weights += math.Pow(discount, float64(k))
			}
			log := math.Log(ps[d.Taken])
			if d.Taken == 0 { // its hope is no parameter's, so the loss is without it
				peak := 0.0
				for a := range ps {
					peak = max(peak, hope(d, a))
				}
				log += peak / temperature
			}
			logs, gains = append(logs, log), append(gains, -sum/weights-value)
			if len(ps) > choices+1 {
				left++
			}
		}
	}
	if len(logs) < 40 || left == 0 {
		t.Fatalf("%d decisions, %d of more actions than the batch holds: too few", len(logs), left)
	}
	n, mean, square, want := float64(len(logs)), 0.0, 0.0, -entropyWeight*entropy
	for _, x := range gains {
		mean += x / n
	}
	for _, x := range gains {
		square += (x - mean) * (x - mean) / n
	}
	for i, x := range gains {
		want -= logs[i] * (x - mean) / math.Sqrt(square)
	}
	want *= actorWeight / n
	if !(math.Abs(got-want) <= 1e-4*(1+math.Abs(want))) { // inputs are rounded to single precision
		t.Errorf("loss %g in the graph, %g from the decisions", got, want)
	}
}

// TestActorDrawsWhatItLearnsFrom compares what was drawn with the probabilities that the loss takes for the draws'.
func TestActorDrawsWhatItLearnsFrom(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 1))
	sum, variance, n := 0.0, 0.0, 0
	for _, s := range played(t, testWeights(rng), actorOptions(), batchGrid, 60, rng) {
		for _, d := range s.decisions {
			if !d.Drawn || d.Taken < 0 {
				continue
			}
			n++
			mean, square := 0.0, 0.0
			ps := chances(d)
			for _, p := range ps {
				if p > 0 {
					mean += p * math.Log(p)
					square += p * math.Log(p) * math.Log(p)
				}
			}
			sum += math.Log(ps[d.Taken]) - mean
			variance += square - mean*mean
		}
	}
	z := sum / math.Sqrt(variance)
	t.Logf("%d draws, mean log probability %.3f standard errors off", n, z)
	if !(n > 300 && math.Abs(z) < 3) {
		t.Errorf("%d draws: log probabilities are %.1f standard errors from what they should be", n, z)
	}
}

// TestActorImproves lets the actor alone, without its critic's loss, learn one machine, from heads that know nothing.
func TestActorImproves(t *testing.T) {
	const choices, batch, updates, early, late = 24, 16, 40, 3, 8
	grid := []int{1, 2, 3, 4, 6, 8, 10}
	rng := rand.New(rand.NewPCG(15, 1))
	w := agents.RandomPolicyWeights(rng)
	clear(w.MeanB)
	clear(w.WidthB)
	machine := Synthetic()(rng)[:1]
	design, err := agents.NewDesign(agents.DefaultParams())
	if err != nil {
		t.Fatal(err)
	}
	g, err := newGraph(ActorCritic, batch, choices, grid, tensor.Float32, true)
	if err != nil {
		t.Fatal(err)
	}
	params, step := stepper(t, g, w)
	in := newInputs(batch, choices, grid)
	var costs []float64 // mean true log cost of what was drawn
	for range updates {
		for i, p := range w.Params() {
			for j, x := range params[i] {
				p.Data[j] = float64(x)
			}
		}
		var seqs []sequence
		for len(seqs) < batch {
			seqs = append(seqs, runEpisode(w, actorOptions(), func(*rand.Rand) []*tunersim.Table { return machine }, grid, design, rng)...)
		}
		seqs = seqs[:batch]
		sum, n := 0.0, 0.0
		for _, s := range seqs {
			for _, d := range s.decisions {
				if d.Drawn && d.Taken >= 0 {
					sum, n = sum+s.truth[d.Phase][d.Taken], n+1
				}
			}
		}
		costs = append(costs, sum/n)
		in.fill(ActorCritic, seqs, grid, choices, rng)
		clear(in.weight)
		if err := in.let(g); err != nil {
			t.Fatal(err)
		}
		if loss := step(1e-3); math.IsNaN(loss) {
			t.Fatal("the loss is not a number")
		}
	}
	first, last := 0.0, 0.0
	for _, c := range costs[:early] {
		first += c / early
	}
	for _, c := range costs[updates-late:] {
		last += c / late
	}
	t.Logf("log cost over the default %.3f at first, %.3f last", first, last)
	if !(last < first-0.2) {
		t.Errorf("log cost over the default %.3f at first, %.3f last: %.2f", first, last, costs)
	}
}

// TestOnlyTheActorDraws keeps the other objectives what they are.
func TestOnlyTheActorDraws(t *testing.T) {
	for _, o := range []Objective{Imitation, QLearning} {
		rng := rand.New(rand.NewPCG(15, 1))
		opt := agents.DefaultPolicyOptions()
		if opt.Actor = o.Actor(); opt.Actor != (agents.Actor{}) {
			t.Errorf("%s: its policy chooses as %+v", o, opt.Actor)
		}
		for _, s := range played(t, testWeights(rng), opt, batchGrid, 10, rng) {
			for _, d := range s.decisions {
				if d.Drawn {
					t.Fatalf("%s: an action was drawn by chance", o)
				}
			}
		}
		g, err := newGraph(o, 2, 3, []int{0, 1}, tensor.Float64, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range g.actor {
			if n != nil {
				t.Errorf("%s: its graph has %s", o, n.Name())
			}
		}
	}
}

// TestActorGoesOnFromImitation resumes pretraining with another objective, at its end and nowhere else.
func TestActorGoesOnFromImitation(t *testing.T) {
	r := Recipe{Seed: 1, Objective: Imitation, Updates: 3, Pretrain: 1, Synthetic: 1, Rate: 3e-3}
	other := r
	other.Objective = ActorCritic
	first, err := New(r, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	for update := range 3 {
		file, err := first.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		second, err := New(other, nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		err = second.Resume(file)
		switch {
		case update != r.Pretrain && !errors.Is(err, ErrBadCheckpoint):
			t.Errorf("after %d updates of another objective: %v", update, err)
		case update == r.Pretrain && err != nil:
			t.Fatal(err)
		case update == r.Pretrain:
			if second.Origin() != (Origin{Objective: Imitation}) {
				t.Errorf("it comes from %+v", second.Origin())
			}
			originStays(t, second)
			if loss, norm, err := second.Step(); err != nil || math.IsNaN(loss) || !(norm > 0) {
				t.Errorf("loss %g, gradient %g, %v", loss, norm, err)
			}
		}
		if _, _, err := first.Step(); err != nil {
			t.Fatal(err)
		}
	}
}

// originStays goes on from t at the end of pretraining with a third objective and other tables, and from that once more:
// what was first is what is told.
func originStays(t *testing.T, from *Trainer) {
	t.Helper()
	r, table := from.recipe, Synthetic()(rand.New(rand.NewPCG(1, 2)))[0]
	r.Objective = QLearning
	for range 2 {
		file, err := from.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		if from, err = New(r, []*tunersim.Table{table}, 1); err != nil {
			t.Fatal(err)
		}
		if err := from.Resume(file); err != nil {
			t.Fatal(err)
		}
		if from.Origin() != (Origin{Objective: Imitation, OtherTables: true}) {
			t.Errorf("it comes from %+v", from.Origin())
		}
	}
}
