package nccltuner

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
)

// modelRank is a rank written from the text of decision 3, knowing nothing of the C code. pause stands before every access
// to shared memory: there the rank may lose its turn for any time.
type modelRank struct {
	r     *Record
	self  *ABIRank
	pause func()
	slot  uint64 // plan buffer + 1 in force
	plan  ABIPlan
}

func (k *modelRank) load(word *uint64) uint64 { k.pause(); return atomic.LoadUint64(word) }

func (k *modelRank) swap(word *uint64, from, to uint64) bool {
	k.pause()
	return atomic.CompareAndSwapUint64(word, from, to)
}

func (k *modelRank) log(n, offset uint64) *uint64 { return &k.r.abi.Changes[(n+offset)%NumChanges] }

// resolve gives the plan buffer + 1 in force in epoch e.
func (k *modelRank) resolve(e uint64) (uint64, error) {
	for tries := 0; ; tries++ {
		if tries > 100*len(k.r.ranks) {
			return 0, fmt.Errorf("epoch %d: no decision", e)
		}
		frontier := k.load(&k.r.abi.Frontier)
		n := frontier & 255
		if frontier>>8 >= e {
			for back := range uint64(NumChanges) {
				if change := k.load(k.log(n, NumChanges-back)); change>>8 <= e {
					return change & 255, nil
				}
			}
			return 0, fmt.Errorf("epoch %d: frontier %#x and no log entry", e, frontier)
		}
		if frontier>>8 != e-1 {
			return 0, fmt.Errorf("epoch %d: frontier %#x went back", e, frontier)
		}
		same := frontier&255 | e<<8
		k.pause()
		if int(atomic.LoadUint32(&k.r.abi.Joined)) != len(k.r.ranks) {
			k.swap(&k.r.abi.Frontier, frontier, same)
			continue
		}
		current := k.load(k.log(n, 0)) & 255
		want := k.load(&k.r.abi.Newest) & 255
		room := true
		oldest := k.load(k.log(n, 2)) >> 8 // entry n-6
		for i := range k.r.ranks {
			room = room && k.load(&k.r.ranks[i].Position)>>8 >= oldest
		}
		if want == current || !room {
			k.swap(&k.r.abi.Frontier, frontier, same)
			continue
		}
		entry := k.load(k.log(n, 1))
		if k.load(&k.r.abi.Frontier) != frontier {
			continue
		}
		if entry>>8 != e && !k.swap(k.log(n, 1), entry, e<<8|want) {
			continue
		}
		k.swap(&k.r.abi.Frontier, frontier, e<<8|(n+1)&255)
	}
}

// enter resolves epoch e, copies its plan in pieces and gives the version in force.
func (k *modelRank) enter(e uint64) (version uint64, err error) {
	if k.slot != 0 {
		k.pause()
		if shared := k.r.abi.Plans[k.slot-1]; shared != k.plan {
			return 0, fmt.Errorf("epoch %d: buffer %d was overwritten while in force: version %d became %d",
				e, k.slot-1, k.plan.Version, shared.Version)
		}
	}
	slot, err := k.resolve(e)
	if err != nil {
		return 0, err
	}
	if slot != k.slot && slot != 0 {
		from, to := k.r.abi.Plans[slot-1].words(), k.plan.words()
		const piece = planWords / 3
		for at := 0; at < planWords; at += piece {
			k.pause()
			copy(to[at:at+piece], from[at:at+piece])
		}
		if k.plan.Checksum != planChecksum(&k.plan) {
			return 0, fmt.Errorf("epoch %d: buffer %d was overwritten while it was copied", e, slot-1)
		}
	}
	k.slot = slot
	k.pause()
	atomic.StoreUint64(&k.self.Position, e<<8|slot)
	if slot == 0 {
		return 0, nil
	}
	return k.plan.Version, nil
}

// oracle knows what every epoch was decided to by asking every rank.
type oracle struct {
	mu       sync.Mutex
	versions []uint64 // by epoch, as far as any rank has come; 0: NCCL's defaults
	failure  error
}

func newOracle() *oracle { return &oracle{versions: []uint64{0}} }

// say takes in one rank's answer; false: the run is over.
func (o *oracle) say(rank int, e, version uint64, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err != nil:
		o.failure = errors.Join(o.failure, fmt.Errorf("rank %d: %w", rank, err))
	case e == uint64(len(o.versions)):
		o.versions = append(o.versions, version)
	case o.versions[e] != version:
		o.failure = errors.Join(o.failure, fmt.Errorf("epoch %d: rank %d runs version %d, another %d", e, rank, version, o.versions[e]))
	}
	return o.failure == nil
}

// changes counts how often the plan in force changed, and checks that versions only grow.
func (o *oracle) changes(t *testing.T) (n int) {
	t.Helper()
	last := uint64(0)
	for e, v := range o.versions {
		if v < last {
			t.Errorf("epoch %d runs version %d after %d", e, v, last)
		}
		if v != last {
			n++
		}
		last = v
	}
	return n
}
