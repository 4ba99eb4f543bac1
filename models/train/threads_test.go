package train

import "testing"

// All that threads share, for the race detector: the tests that train for longer run without it (Makefile), and that the number of
// threads makes no difference is tested there.
func TestThreads(t *testing.T) {
	trainer, err := New(Recipe{Seed: 1, Objective: Imitation, Updates: 2, Synthetic: 1, Rate: 3e-3}, nil, 3)
	if err != nil {
		t.Fatal(err)
	}
	trainer.valid = trainer.valid[:8]
	loss, norm, err := trainer.Step() // games of the next update are played beside it
	if err != nil {
		t.Fatal(err)
	}
	if regret := trainer.Validate(loss, norm); !(regret > 0) {
		t.Errorf("regret %g", regret)
	}
	if _, _, err := trainer.Step(); err != nil || !trainer.Done() {
		t.Errorf("%v, done: %v", err, trainer.Done())
	}
}
