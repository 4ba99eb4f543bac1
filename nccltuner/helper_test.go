package nccltuner

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"unsafe"
)

// heapMapping is memory of the Go heap in place of a file: aligned as a mapping is, and watched by the race detector,
// which knows nothing about mapped memory.
func heapMapping(name string, data []byte) *mapping {
	words := make([]uint64, len(data)/8+1)
	m := &mapping{name: name, data: unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)[:len(data)]}
	copy(m.data, data)
	return m
}

// newRecordBytes is a record as its creator leaves it, all ranks missing.
func newRecordBytes(commID uint64, nRanks int) []byte {
	m := heapMapping("", make([]byte, recordSize+int64(nRanks)*rankSize))
	abi := m.fixedRecord()
	abi.Header = ABIHeader{Magic: RecordMagic, Version: ABIVersion, SizeBytes: uint64(len(m.data))}
	abi.CommID, abi.NRanks, abi.NNodes, abi.EpochCalls = commID, uint32(nRanks), 1, EpochCalls
	return m.data
}

// newRingBytes is a ring as its creator leaves it.
func newRingBytes(p Process, numCells int) []byte {
	m := heapMapping("", make([]byte, ringSize+int64(numCells)*cellSize))
	abi := m.fixedRing()
	abi.Header = ABIHeader{Magic: RingMagic, Version: ABIVersion, SizeBytes: uint64(len(m.data))}
	abi.Pid, abi.StartTime, abi.NumCells = p.PID, p.StartTime, uint32(numCells)
	_, cells := m.ring(numCells)
	for i := range cells {
		cells[i].Cell = uint64(i)
	}
	return m.data
}

func heapRecord(t testing.TB, nRanks int) *Record {
	t.Helper()
	r, err := newRecord(heapMapping("record", newRecordBytes(5, nRanks)), 5)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func heapRing(t testing.TB, numCells int) *Ring {
	t.Helper()
	p := Process{3, 4}
	r, err := newRing(heapMapping("ring", newRingBytes(p, numCells)), p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// join registers a rank as C does: its words first, then the count.
func join(r *Record, p Process) {
	i := atomic.LoadUint32(&r.abi.Joined)
	r.ranks[i].Pid, r.ranks[i].StartTime, r.ranks[i].Rank = p.PID, p.StartTime, int32(i)
	atomic.StoreUint32(&r.abi.Joined, i+1)
}

func putFile(t testing.TB, d *Dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(d.Path(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// put is the producer's side of the ring, as C does it. A consumer that damages the ring must not hang the test.
func put(abi *ABIRing, cells []ABISample, s *ABISample) bool {
	lap := uint64(len(cells))
	for range 1 << 20 {
		pos := atomic.LoadUint64(&abi.Head)
		cell := &cells[pos&(lap-1)]
		switch seq := atomic.LoadUint64(&cell.Cell); {
		case seq == pos:
			if atomic.CompareAndSwapUint64(&abi.Head, pos, pos+1) {
				fill(cell, s, pos)
				return true
			}
		case int64(seq-pos) < 0:
			atomic.AddUint64(&abi.Dropped, 1)
			return false
		}
	}
	panic("no cell is free and none is full")
}

// fill writes all but the cell word, then commits. Field by field, since that word is the consumer's until the commit.
func fill(cell, s *ABISample, pos uint64) {
	cell.CommID, cell.Seq, cell.Bytes = s.CommID, s.Seq, s.Bytes
	cell.CounterNs, cell.SignalNs, cell.PlanVersion, cell.Action = s.CounterNs, s.SignalNs, s.PlanVersion, s.Action
	cell.Rank, cell.Collective, cell.Algorithm, cell.Protocol = s.Rank, s.Collective, s.Algorithm, s.Protocol
	cell.Channels, cell.Flags, cell.NRanks = s.Channels, s.Flags, s.NRanks
	atomic.StoreUint64(&cell.Cell, pos+1)
}

// goodSample passes every check.
func goodSample() ABISample {
	return ABISample{
		CommID: 5, Seq: 9, Bytes: 1 << 20, CounterNs: 1000, SignalNs: 2000, PlanVersion: 3, Action: 0x180111, // Ring/LL128/24
		Rank: 1, Collective: 4, Algorithm: 1, Protocol: 1, Channels: 24, NRanks: 8,
	}
}
