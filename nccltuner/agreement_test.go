package nccltuner

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// testSeed is TEST_SEED, so that a failure can be replayed.
func testSeed(t *testing.T) uint64 {
	seed := uint64(1)
	if s := os.Getenv("TEST_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("TEST_SEED=%s: %v", s, err)
		}
		seed = n
	}
	t.Logf("TEST_SEED=%d", seed)
	return seed
}

// numberedSpec is a plan whose content tells which publication it is.
func numberedSpec(i int) *PlanSpec {
	return &PlanSpec{SampleEvery: 1, Entries: []EntrySpec{{
		Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: uint8(i % NumBuckets)}, ID: uint32(i), Base: 0x11,
	}}}
}

// actor is a coroutine that gives up its turn at every access to shared memory.
type actor struct {
	resume func() (struct{}, bool)
	asleep int // turns to miss
}

var errStopped = errors.New("the run was stopped")

// newActor makes a coroutine of run, which calls pause before every access.
func newActor(run func(pause func())) (a *actor, stop func()) {
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if p := recover(); p != nil && p != errStopped {
				panic(p)
			}
		}()
		run(func() {
			if !yield(struct{}{}) {
				panic(errStopped)
			}
		})
	})
	return &actor{resume: next}, stop
}

// interleave runs ranks and daemon in one goroutine, one shared access at a time, in an order drawn from rng; everybody
// stalls now and then for up to a thousand accesses of the others. mutate, when not nil, makes the publisher forget
// something.
func interleave(nRanks, numEpochs int, r *Record, rng *rand.Rand, restarts bool, mutate func(*bufferView)) (o *oracle, published int) {
	o = newOracle()
	var actors []*actor
	for i := range nRanks {
		a, stop := newActor(func(pause func()) {
			k := &modelRank{r: r, self: &r.ranks[i], pause: pause}
			pause()
			join(r, Process{uint32(i + 1), 1})
			for e := uint64(1); e <= uint64(numEpochs); e++ {
				version, err := k.enter(e)
				if !o.say(i, e, version, err) {
					return
				}
			}
			pause()
			atomic.StoreUint64(&k.self.Position, positionLeft)
		})
		defer stop()
		actors = append(actors, a)
	}
	a, stop := newActor(func(pause func()) {
		var p *Publisher
		for p == nil || publishMutated(p, published+1, mutate, &published) {
			pause()
			if p == nil || restarts && rng.IntN(20) == 0 {
				var err error
				if p, err = NewPublisher(r); err != nil {
					o.say(nRanks, 0, 0, err)
					return
				}
				p.pause = pause
			}
		}
	})
	defer stop()
	actors = append(actors, a)
	for running := nRanks; running > 0 && o.failure == nil; {
		i := rng.IntN(nRanks + 1)
		a := actors[i]
		if a.asleep > 0 {
			a.asleep--
			continue
		}
		if rng.IntN(40) == 0 {
			a.asleep = rng.IntN(1 << rng.IntN(10))
		}
		if a.resume == nil {
			continue
		}
		if _, more := a.resume(); !more {
			a.resume = nil
			if i < nRanks {
				running--
			}
		}
	}
	return o, published
}

// publishMutated is Publish with a view that mutate has falsified. False: nothing can be published any more.
func publishMutated(p *Publisher, i int, mutate func(*bufferView), published *int) bool {
	if mutate == nil {
		_, err := p.Publish(numberedSpec(i))
		if err == nil {
			*published++
		}
		return err == nil || errors.Is(err, ErrNoFreeBuffer)
	}
	if err := encodePlan(&p.staging, numberedSpec(i)); err != nil {
		return false
	}
	v, err := p.look()
	if err != nil {
		return false
	}
	mutate(&v)
	if buffer, ok := v.free(); ok {
		p.write(buffer)
		*published++
	}
	return true
}

func TestInterleavedAgreement(t *testing.T) {
	seed := testSeed(t)
	runs, numEpochs := 20, 2000
	if os.Getenv("DYN_LONG") != "" {
		runs, numEpochs = 200, 10000
	}
	published, changes := 0, 0
	for run := range runs {
		rng := rand.New(rand.NewPCG(seed, uint64(run)))
		nRanks := 1 + rng.IntN(6)
		o, n := interleave(nRanks, numEpochs, heapRecord(t, nRanks), rng, true, nil)
		if o.failure != nil {
			t.Fatalf("run %d: %v", run, o.failure)
		}
		published += n
		changes += o.changes(t)
	}
	t.Logf("%d runs, %d publications, %d changes of the plan in force", runs, published, changes)
	if published < 1000*runs/20 || changes < 1000*runs/20 {
		t.Errorf("%d publications and %d changes are too few to show anything", published, changes)
	}
}

// A publisher that forgets a rule must be caught by the very run above, else it shows nothing. (The positions are not
// among them: when log and positions are read at one moment, the log names whatever a position names.)
func TestInterleavingFindsBrokenPublishers(t *testing.T) {
	seed := testSeed(t)
	for name, mutate := range map[string]func(*bufferView){
		"newest":   func(v *bufferView) { v.newest = -1 },
		"log":      func(v *bufferView) { v.log = [NumChanges]uint64{}; v.positions = 0 },
		"frontier": func(v *bufferView) { v.reusableFrom = [NumPlans]uint64{} },
		"slowest":  func(v *bufferView) { v.slowest += 2; v.positions = 0 },
	} {
		found := false
		for run := 0; run < 200 && !found; run++ {
			rng := rand.New(rand.NewPCG(seed, uint64(run)))
			nRanks := 2 + rng.IntN(4)
			o, _ := interleave(nRanks, 2000, heapRecord(t, nRanks), rng, false, mutate)
			if found = o.failure != nil; found {
				t.Logf("without the rule %q, run %d: %v", name, run, o.failure)
			}
		}
		if !found {
			t.Errorf("a publisher without the rule %q went unnoticed", name)
		}
	}
}

// slowest is the epoch of the slowest rank.
func slowest(r *Record) uint64 {
	e := positionLeft
	for i := range r.ranks {
		e = min(e, atomic.LoadUint64(&r.ranks[i].Position))
	}
	return e >> 8
}

// Real goroutines, one a rank and one for the daemon, on memory that the race detector watches: every plain copy of a
// plan must be ordered after its writing and before its reuse by the atomic words alone.
func TestConcurrentAgreement(t *testing.T) {
	seed := testSeed(t)
	const nRanks = 4
	target := int64(3000)
	if os.Getenv("DYN_LONG") != "" {
		target = 100000
	}
	r := heapRecord(t, nRanks)
	o := newOracle()
	for i := range nRanks {
		join(r, Process{uint32(i + 1), 1})
	}
	var all sync.WaitGroup
	var published atomic.Int64
	var over atomic.Bool // some rank or the daemon has failed
	for i := range nRanks {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			k := &modelRank{r: r, self: &r.ranks[i], pause: func() {
				if rng.IntN(100) == 0 {
					for range rng.IntN(1 << rng.IntN(8)) {
						runtime.Gosched()
					}
				}
			}}
			for e := uint64(1); published.Load() < target && !over.Load(); e++ {
				// Collectives keep ranks together; without them a rank can be a million epochs behind, and then its
				// plans rightly hold every buffer.
				for ahead := 1 + rng.Uint64N(100); e > slowest(r)+ahead && !over.Load() && published.Load() < target; {
					runtime.Gosched()
				}
				version, err := k.enter(e)
				if !o.say(i, e, version, err) {
					over.Store(true)
				}
			}
			atomic.StoreUint64(&k.self.Position, positionLeft)
		})
	}
	all.Go(func() {
		rng := rand.New(rand.NewPCG(seed, nRanks))
		deadline := time.Now().Add(time.Minute)
		p, err := NewPublisher(r)
		for err == nil && published.Load() < target && !over.Load() {
			if rng.IntN(100) == 0 {
				if p, err = NewPublisher(r); err != nil {
					break
				}
			}
			switch _, publishErr := p.Publish(numberedSpec(int(published.Load()) + 1)); {
			case publishErr == nil:
				published.Add(1)
			case !errors.Is(publishErr, ErrNoFreeBuffer):
				err = publishErr
			case time.Now().After(deadline):
				err = fmt.Errorf("only %d publications in a minute: %w", published.Load(), publishErr)
			}
			runtime.Gosched()
		}
		if err != nil {
			over.Store(true)
			t.Errorf("daemon: %v", err)
		}
	})
	all.Wait()
	if o.failure != nil {
		t.Fatal(o.failure)
	}
	changes := o.changes(t)
	t.Logf("%d publications, %d epochs, %d changes of the plan in force", published.Load(), len(o.versions), changes)
	if changes < int(target)/10 {
		t.Errorf("%d changes are too few to show anything", changes)
	}
}
