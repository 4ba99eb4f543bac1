package tuner_test

import (
	"math"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// besideStep is four calls of 16 MiB, each beside compute that takes longer than most choices do.
func besideStep() step {
	s := step{join: beside}
	for range 4 {
		s.calls = append(s.calls, stepCall{16 << 20, 2e6})
	}
	return s
}

var stepLearners = []string{"lstm", "coordinate-descent"}

// The call that is shortest takes most from the compute beside it. Charged what calls take, learners choose it; charged what
// calls add to the step they choose another, and the step is shorter.
func TestExposedRewardShortensTheStep(t *testing.T) {
	plain := truth(t, besideStep())
	for _, learner := range stepLearners {
		for seed := uint64(1); seed <= 3; seed++ {
			got := map[tuner.Reward]tuner.BucketView{}
			for _, reward := range []tuner.Reward{tuner.RewardCall, tuner.RewardExposed} {
				p := newPlay(t, learner, reward, besideStep(), seed)
				p.run(2000)
				got[reward] = p.core.Buckets()[0]
			}
			byCall, byStep := got[tuner.RewardCall], got[tuner.RewardExposed]
			s := besideStep()
			callNs, _ := s.costOf(byCall.Choice, 16<<20)
			otherNs, _ := s.costOf(byStep.Choice, 16<<20)
			stepCall, stepExposed := truth(t, besideStep(), byCall), truth(t, besideStep(), byStep)
			t.Logf("%s %d: call %v: call %.0f us, step %.0f; exposed %v: call %.0f us, step %.0f; default step %.0f; said %.2fx", learner, seed,
				byCall.Choice, callNs/1e3, stepCall/1e3, byStep.Choice, otherNs/1e3, stepExposed/1e3, plain/1e3, byStep.SpeedUp)
			if stepExposed >= 0.985*plain || stepExposed >= stepCall || otherNs <= callNs {
				t.Errorf("%s, seed %d: %v", learner, seed, byStep)
			}
		}
	}
}

// Where compute waits for every call both rewards are one: the choice is as good, and what is said of it is the call's.
func TestExposedRewardWithoutOverlap(t *testing.T) {
	s := besideStep()
	s.join, s.channels = serial, 4 // a default that can be beaten by 40%
	plain, best := truth(t, s), math.Inf(1)
	bucket := bucketOf(actions.AllReduce, 24)
	for _, a := range tuner.Choices(bucket, classicMarks(actions.AllReduce), 0, state.Shape{Ranks: 2, Nodes: 2}, true) {
		best = min(best, truth(t, s, tuner.BucketView{Bucket: bucket, Choice: a}))
	}
	standard, _ := s.costOf(actions.Default, 16<<20)
	for _, learner := range stepLearners {
		for seed := uint64(1); seed <= 3; seed++ {
			for _, reward := range []tuner.Reward{tuner.RewardCall, tuner.RewardExposed} {
				p := newPlay(t, learner, reward, s, seed)
				p.run(2000)
				v := p.core.Buckets()[0]
				chosen := truth(t, s, v)
				callNs, _ := s.costOf(v.Choice, 16<<20)
				t.Logf("%s %d %v: %v, step %.0f us (default %.0f, best %.0f); said %.3fx, is %.3fx", learner, seed, reward, v.Choice, chosen/1e3,
					plain/1e3, best/1e3, v.SpeedUp, standard/callNs)
				if chosen > best+0.05*(plain-best) || math.Abs(math.Log(v.SpeedUp*callNs/standard)) > 0.06 { // a place's 3 first calls say what the default takes
					t.Errorf("%s, seed %d, %v", learner, seed, reward)
				}
			}
		}
	}
}

// Whatever the noise of compute, however often the host stands still and wherever compute waits, the step gets no longer;
// and where the calls that nothing hides are slow, it gets shorter.
func TestExposedRewardOfManyCalls(t *testing.T) {
	for _, c := range []struct {
		name     string
		join     joinMode
		channels float64
		shift    int // of bytes
		jitter   float64
		want     float64 // of the default's step
	}{
		{"nothing hidden", serial, 2, 24, 0.01, 0.76},
		{"beside", beside, 2, 24, 0.01, 0.93},
		{"backlog", backlog, 2, 24, 0.01, 0.93},
		{"small calls, noise of their own size", beside, 24, 19, 0.03, 1.005},
		{"default is best", backlog, 3, 22, 0.02, 1.005},
	} {
		s := step{join: c.join, channels: c.channels}
		for i := range 8 {
			s.calls = append(s.calls, stepCall{(1 + uint64(i/6)) << c.shift, 1.7e6 + 1e5*float64(i)})
		}
		plain := truth(t, s)
		for _, learner := range stepLearners {
			for seed := uint64(1); seed <= 2; seed++ {
				p := newPlay(t, learner, tuner.RewardExposed, s, seed)
				p.paused, p.jitter = true, c.jitter
				learning := p.run(1500) / plain
				views := p.core.Buckets()
				chosen := truth(t, s, views...) / plain
				t.Logf("%s, %s %d: %.4f of the default's step, %.4f while learning; %v and %v", c.name, learner, seed, chosen, learning, views[0].Choice, views[1].Choice)
				if chosen > c.want || learning > c.want+0.02 {
					t.Errorf("%s, %s, seed %d: %v", c.name, learner, seed, views)
				}
			}
		}
	}
}

// Where all calls of a step are equal and the compute beside them is not, the places of the step are told by what is between
// calls: without them this noise of 20% hides what choices differ in, and the default stays.
func TestExposedRewardOfEqualCalls(t *testing.T) {
	s := step{join: beside}
	for i := range 4 {
		s.calls = append(s.calls, stepCall{16 << 20, 1.4e6 + 0.4e6*float64(i)})
	}
	plain := truth(t, s)
	for _, learner := range stepLearners {
		for seed := uint64(1); seed <= 3; seed++ {
			p := newPlay(t, learner, tuner.RewardExposed, s, seed)
			p.paused = true
			p.run(2000)
			chosen := truth(t, s, p.core.Buckets()...) / plain
			t.Logf("%s %d: %v, %.4f of the default's step", learner, seed, p.core.Buckets()[0].Choice, chosen)
			if chosen > 0.975 {
				t.Errorf("%s, seed %d: %v", learner, seed, p.core.Buckets())
			}
		}
	}
}

// An alarm is raised by what calls take. The choice in force stays over it, and is judged anew by what calls add to the step.
func TestExposedRewardKeepsItsChoiceOverAnAlarm(t *testing.T) {
	for _, learner := range stepLearners {
		for seed := uint64(1); seed <= 3; seed++ {
			p := newPlay(t, learner, tuner.RewardExposed, besideStep(), seed)
			p.run(2000)
			before, alarms, plain := p.core.Buckets()[0], p.core.Totals().Alarms, 0
			p.dearer = 0.8 // no choice outlasts the compute beside it, so none becomes a bad one
			for range 1000 {
				p.run(1)
				if p.core.Buckets()[0].Choice == actions.Default {
					plain++
				}
			}
			now := p.core.Buckets()[0]
			t.Logf("%s %d: %v (said %.2fx), then %v (said %.2fx), %d alarms, the default in force for %d steps", learner, seed, before.Choice, before.SpeedUp,
				now.Choice, now.SpeedUp, p.core.Totals().Alarms-alarms, plain)
			if before.Choice == actions.Default || p.core.Totals().Alarms == alarms || plain > 0 || now.SpeedUp <= 1.02 {
				t.Errorf("%s, seed %d: %v", learner, seed, now)
			}
		}
	}
}
