package nccltuner

import (
	"fmt"
	"math/bits"
	"sync/atomic"
)

// What a record says of a communicator whose ranks are on several hosts. Each host has a record of its own, with its own ranks alone.

var refusals = [...]string{
	RefusedLate:   "it had passed the epoch in which the plan was to begin",
	RefusedBusy:   "it has not begun the plan before",
	RefusedUnfit:  "the plan failed its check there",
	RefusedMarks:  "NCCL does not allow there what the plan chooses",
	RefusedUser:   "its user wants it otherwise",
	RefusedSilent: "it did not answer, or has gone",
	RefusedApart:  "it counts AllToAll where rank 0 does not, or the other way round: it heard too late whether all begin with GIN, and no plan can come into force",
}

// hosts reads who is here, before joined: ranks are counted, and their number written, before they have met.
func (r *Record) hosts(v *RecordView) error {
	state := atomic.LoadUint32(&r.abi.Hosts)
	if state > HostsParted {
		return fmt.Errorf("%s: hosts in state %d: %w", r.memory.name, state, ErrGarbage)
	}
	if v.Hosts, v.HostRanks = state, r.info.NRanks; !v.Several() {
		return nil
	}
	n := atomic.LoadUint32(&r.abi.HostRanks)
	if n == 0 || n >= uint32(r.info.NRanks) {
		return fmt.Errorf("%s: hosts have met, and %d of %d ranks are on this one: %w", r.memory.name, n, r.info.NRanks, ErrGarbage)
	}
	v.HostRanks = int(n)
	v.Proposed, v.Refusal, v.Refuser = atomic.LoadUint64(&r.abi.Proposed), atomic.LoadUint32(&r.abi.Refusal), -1
	if by := atomic.LoadUint32(&r.abi.Refuser); by < uint32(r.info.NRanks) {
		v.Refuser = int(by)
	}
	return nil
}

// met checks what the ranks of a view say that have met those of other hosts, and adds what these say together.
func (r *Record) met(v *RecordView) error {
	if v.Joined != v.HostRanks {
		return fmt.Errorf("%s: %d ranks joined, and %d that have met others are on this host: %w", r.memory.name, v.Joined, v.HostRanks, ErrGarbage)
	}
	leads, newest := v.Leads(), atomic.LoadUint64(&r.abi.Newest)>>8 // which may have moved since v.NewestVersion was read
	for i := range v.Ranks {
		k := &v.Ranks[i]
		if k.Slot != 0 || leads && k.Agreed > newest {
			return fmt.Errorf("%s: registration %d has plan buffer %d and plan %d of several hosts in force, where %d is the newest: %w",
				r.memory.name, i, k.Slot, k.Agreed, newest, ErrGarbage)
		}
		k.Version = k.Agreed
	}
	if !leads {
		return nil
	}
	if v.Proposed > newest {
		return fmt.Errorf("%s: plan %d is proposed, where %d is the newest: %w", r.memory.name, v.Proposed, newest, ErrGarbage)
	}
	abi := &r.ranks[v.HostRanks]
	flags := atomic.LoadUint32(&abi.Flags)
	v.Others = RankView{Rank: -1, NCCLVersion: int(atomic.LoadUint32(&abi.NcclVersion))}
	v.Others.setFlags(flags)
	v.OthersTold = flags != 0 || v.Others.NCCLVersion != 0
	v.Veto = v.Veto || v.Others.Veto
	return nil
}

// Several says that ranks on several hosts have met: what is in force they agree on, whether they still reach each other or not.
func (v *RecordView) Several() bool { return v.Hosts == HostsMet || v.Hosts == HostsParted }

// Leads says that the communicator's rank 0 is on this host: its daemon plans, where there are several.
func (v *RecordView) Leads() bool {
	for i := range v.Ranks {
		if v.Ranks[i].Rank == 0 {
			return true
		}
	}
	return false
}

// Reporters is how many say what they can run: all ranks, or those of this host and one word of all others.
func (v *RecordView) Reporters() int {
	if v.Several() {
		return v.HostRanks + 1
	}
	return v.HostRanks
}

// Any reports whether f holds for a rank, all others on other hosts being one.
func (v *RecordView) Any(f func(*RankView) bool) bool {
	for i := range v.Ranks {
		if f(&v.Ranks[i]) {
			return true
		}
	}
	return v.Several() && v.Leads() && f(&v.Others)
}

// Agreed is the newest version that a rank of this host has in force where several hosts agree on it; 0: none.
func (v *RecordView) Agreed() (version uint64) {
	for i := range v.Ranks {
		version = max(version, v.Ranks[i].Agreed)
	}
	return version
}

// Heard has a bit for each rank of this host, by its number in the communicator; false: they do not say which they are.
func (v *RecordView) Heard() (ranks uint64, ok bool) {
	for i := range v.Ranks {
		if at := v.Ranks[i].Rank; at >= 0 && at < MaxRanks {
			ranks |= 1 << at
		}
	}
	return ranks, bits.OnesCount64(ranks) == len(v.Ranks)
}

// Refused says why the newest plan is not in force, where ranks on several hosts have not taken it; "": they have, or have not answered yet.
func (v *RecordView) Refused() string {
	if !v.Several() || v.Refusal == RefusedNot || v.Proposed == 0 || v.Proposed != v.NewestVersion || v.Proposed <= v.Agreed() {
		return ""
	}
	why := "for a reason that this daemon does not know"
	if v.Refusal < uint32(len(refusals)) {
		why = refusals[v.Refusal]
	}
	if v.Refuser < 0 {
		return fmt.Sprintf("plan %d is not in force: of a rank, %s", v.Proposed, why)
	}
	return fmt.Sprintf("plan %d is not in force: of rank %d, %s", v.Proposed, v.Refuser, why)
}

// reporters are the slots of all who say what they can run.
func (r *Record) reporters() []ABIRank {
	if hosts := atomic.LoadUint32(&r.abi.Hosts); hosts != HostsMet && hosts != HostsParted {
		return r.ranks
	}
	return r.ranks[:min(uint64(atomic.LoadUint32(&r.abi.HostRanks))+1, uint64(len(r.ranks)))]
}
