package daemon

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"dynamiccl/actions"
	"dynamiccl/nccltuner"
)

// program is what one that comes and goes leaves behind: the record of a communicator and a ring with the samples of its calls, of graphs
// and of puts. Its processes have ended by the time that a sweep looks.
type program struct{ record, ring []byte }

const programCalls = 40

func newProgram() program {
	ranks := &[2]nccltuner.ABIRank{}
	for i := range ranks {
		ranks[i].Pid, ranks[i].StartTime, ranks[i].Rank, ranks[i].NcclVersion, ranks[i].Run = 3, 4, int32(i), 22809, 5
		ranks[i].Flags, ranks[i].MemoryState, ranks[i].Calls = nccltuner.RankEventTimed, nccltuner.MemoryBound, programCalls
		for b := range ranks[i].Marks[actions.AllReduce] {
			ranks[i].Marks[actions.AllReduce][b] = 1<<31 | 7<<26 | 7<<(3*actions.Ring)
		}
	}
	var cells []nccltuner.ABISample
	for seq := range uint64(programCalls) {
		for rank := range int32(2) {
			call := nccltuner.ABISample{Seq: seq, Bytes: 1 << (10 + seq%8), StartNs: 1e9 + seq*1e5, ClockNs: 7, CounterNs: 10_000, SignalNs: 20_000, Rank: rank,
				NRanks: 2, Collective: uint8(actions.AllReduce), Algorithm: uint8(actions.Ring), Channels: 8, Flags: nccltuner.SampleEventTimed}
			replay, trip, capture := call, call, call
			capture.CounterNs, capture.SignalNs, capture.Flags = 0, 0, nccltuner.SampleUntimed|nccltuner.SampleCaptured
			replay.Action = actions.Action{Path: actions.PathLSA, Kernel: actions.OneShot, Channels: 4}.Word()
			replay.Algorithm, replay.Channels, replay.Flags = uint8(actions.OneShot), 4, nccltuner.SampleReplayed|nccltuner.SampleLsa
			trip.Action = actions.Action{Path: actions.PathGIN, Backend: actions.BackendProxy, Channels: 4}.Word()
			trip.Collective, trip.Algorithm, trip.Channels, trip.Flags, trip.Peer = 0, uint8(actions.BackendProxy), 4, nccltuner.SampleGin|nccltuner.SampleTrip, uint8(1-rank)
			cells = append(cells, call, capture, replay, trip)
		}
	}
	numCells := 1
	for numCells <= len(cells) {
		numCells *= 2
	}
	for i := range cells {
		cells[i].Cell = uint64(i) + 1
	}
	for i := len(cells); i < numCells; i++ {
		cells = append(cells, nccltuner.ABISample{Cell: uint64(i)})
	}
	return program{sharedBytes([]any{&nccltuner.ABIRecord{NRanks: 2, NNodes: 1, EpochCalls: nccltuner.EpochCalls, Joined: 2}, ranks}),
		sharedBytes([]any{&nccltuner.ABIRing{NumCells: uint32(numCells), Head: programCalls * 8}, cells})}
}

// come writes the files of the program of a number.
func (p program) come(t *testing.T, dir string, number uint32) {
	comm := uint64(number) << 20
	binary.NativeEndian.PutUint64(p.record[unsafe.Offsetof(nccltuner.ABIRecord{}.CommID):], comm)
	binary.NativeEndian.PutUint32(p.ring[unsafe.Offsetof(nccltuner.ABIRing{}.Pid):], math.MaxInt32-number)
	binary.NativeEndian.PutUint64(p.ring[unsafe.Offsetof(nccltuner.ABIRing{}.StartTime):], 4)
	cell := unsafe.Sizeof(nccltuner.ABISample{})
	for at := unsafe.Sizeof(nccltuner.ABIRing{}); at < uintptr(len(p.ring)); at += cell {
		binary.NativeEndian.PutUint64(p.ring[at+unsafe.Offsetof(nccltuner.ABISample{}.CommID):], comm)
	}
	for name, data := range map[string][]byte{fmt.Sprintf("comm-%016x.shm", comm): p.record, fmt.Sprintf("ring-%d-4.shm", math.MaxInt32-number): p.ring} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// holds is what a daemon has of what can run out.
type holds struct {
	heapBytes                         int64
	goroutines, descriptors, mappings int
	comms, rings, waiting             int
}

func (d *Daemon) holds(t *testing.T) holds {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	h := holds{goroutines: runtime.NumGoroutine(), descriptors: len(open), mappings: strings.Count(string(maps), ".shm"), comms: len(d.comms) + len(d.order),
		rings: len(d.rings), waiting: len(d.waiting)}
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what has a finalizer
	runtime.ReadMemStats(&m)
	h.heapBytes = int64(m.HeapAlloc)
	return h
}

// A daemon lives for months and programs come and go: none leaves anything behind, whether its samples are read before its communicator
// is known to be gone or later.
func TestProgramsThatCameAndWentLeaveNothing(t *testing.T) {
	cfg := testConfig(t)
	d, err := Open(cfg, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	p, number := newProgram(), uint32(0)
	const warm, more = departedKept + 44, 200 // what people may ask about is full after the first ones
	rounds := func(n int) {
		for range n {
			number++
			p.come(t, cfg.Dir, number)
			d.scan()
			if number%2 == 0 {
				d.sweep() // takes its record, and its ring is not read yet
			}
			for range 2 {
				d.scanned, d.swept = 0, d.now()
				d.turn()
			}
			d.sweep() // which says that its process has ended,
			d.drain()
			d.sweep() // and that nothing is left to read
			if number%50 == 0 {
				if err := d.memory.Flush(); err != nil {
					t.Fatal(err)
				}
			}
		}
		clear(d.captured) // has a bound of its own: TestCapturedCallsOfCommunicatorsThatAreGone
	}
	rounds(warm)
	before := d.holds(t)
	rounds(more)
	after := d.holds(t)
	t.Logf("%d programs: %+v; %d more: %+v", warm, before, more, after)
	if totals := d.core.Totals(); totals.Groups == 0 || totals.Replays.Joined == 0 || totals.Trips.Joined == 0 || totals.Unknown == 0 || d.publications < (warm+more)/2 || len(d.left) != departedKept {
		t.Errorf("the programs did not do what leaves something: %+v, %d plans, %d remembered", totals, d.publications, len(d.left))
	}
	if grown := after.heapBytes - before.heapBytes; grown > more*256 {
		t.Errorf("the heap grew by %d bytes a program", grown/more)
	}
	before.heapBytes, after.heapBytes = 0, 0
	if after != before || after.comms+after.rings+after.mappings != 0 {
		t.Errorf("%d programs more: %+v, before them %+v", more, after, before)
	}
}
