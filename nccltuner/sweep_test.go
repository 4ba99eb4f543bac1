package nccltuner

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
)

func TestSweepRemovesUnfinishedFilesOfTheDead(t *testing.T) {
	x := newScanTest(t)
	p := Process{3, 4}
	putFile(t, x.d, ringName(p), nil)
	putFile(t, x.d, recordName(1), make([]byte, recordSize+rankSize))
	x.expect(x.s.Scan, "")
	unlock, ok, err := x.d.tryJoinLock() // a rank is creating the record
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	x.expect(x.s.Sweep, "")
	unlock()
	x.expect(x.s.Sweep, "rm:comm-0000000000000001.shm") // nobody is: its creator has died
	x.dead[p] = true
	x.expect(x.s.Sweep, "rm:ring-3-4.shm")
	if x.exists(ringName(p)) || x.exists(recordName(1)) {
		t.Error("said to be removed and still there")
	}
	x.expect(x.s.Scan, "")
}

// Rings of another layout are counted while their processes live, and deleted once these have ended.
func TestSweepRemovesRingsOfAnotherLayout(t *testing.T) {
	x := newScanTest(t)
	a, b := Process{3, 4}, Process{5, 6}
	putFile(t, x.d, ringName(a), ofLayout(newRingBytes(a, 8), 1))
	putFile(t, x.d, ringName(b), ofLayout(newRingBytes(b, 8), -1))
	x.expect(x.s.Scan, "!ring-3-4.shm !ring-5-6.shm")
	x.expect(x.s.Sweep, "")
	if got := x.s.OtherLayouts(); len(got) != 2 || got[ABIVersion+1] != 1 || got[ABIVersion-1] != 1 {
		t.Errorf("%v", got)
	}
	x.dead[a] = true
	x.expect(x.s.Sweep, "rm:ring-3-4.shm")
	if x.exists(ringName(a)) || !x.exists(ringName(b)) {
		t.Error("removed is not what nobody can use")
	}
	x.expect(x.s.Scan, "")
	if got := x.s.OtherLayouts(); len(got) != 1 || got[ABIVersion-1] != 1 {
		t.Errorf("%v", got)
	}
}

func ofLayout(data []byte, by int) []byte {
	h := heapMapping("", data)
	h.header().Version = uint32(ABIVersion + by)
	return h.data
}

// A record of another layout stays while somebody has it open or mapped, or may be joining it.
func TestSweepRemovesRecordsOfAnotherLayout(t *testing.T) {
	for name, by := range map[string]int{"older": -1, "newer": 1} {
		t.Run(name, func(t *testing.T) {
			x := newScanTest(t)
			for id := range uint64(3) {
				putFile(t, x.d, recordName(id), ofLayout(newRecordBytes(id, 1), by))
			}
			open, err := os.OpenFile(filepath.Join(x.d.Path(), recordName(0)), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			mapped, err := mapFile(x.d.fd, recordName(1), x.d.uid, recordSize+rankSize) // with its descriptor closed, as ranks have it
			if err != nil {
				t.Fatal(err)
			}
			x.expect(x.s.Scan, "!comm-0000000000000000.shm !comm-0000000000000001.shm !comm-0000000000000002.shm")
			unlock, ok, err := x.d.tryJoinLock()
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			x.expect(x.s.Sweep, "")
			unlock()
			x.expect(x.s.Sweep, "rm:comm-0000000000000002.shm")
			x.expect(x.s.Sweep, "")
			if err := open.Close(); err != nil {
				t.Fatal(err)
			}
			x.expect(x.s.Sweep, "rm:comm-0000000000000000.shm")
			if err := mapped.close(); err != nil {
				t.Fatal(err)
			}
			x.expect(x.s.Sweep, "rm:comm-0000000000000001.shm")
			for id := range uint64(3) {
				if x.exists(recordName(id)) {
					t.Errorf("%s is still there", recordName(id))
				}
			}
		})
	}
}

func TestSweepRemovesStaleRecords(t *testing.T) {
	x := newScanTest(t)
	a, b := Process{10, 1}, Process{11, 1}
	putFile(t, x.d, recordName(1), newRecordBytes(1, 2))
	r := x.expect(x.s.Scan, "+comm-0000000000000001.shm").Records[0]
	join(r, a)
	join(r, b)
	x.expect(x.s.Sweep, "")
	x.dead[a] = true
	x.expect(x.s.Sweep, "") // stale, and b still lives
	unlock, ok, err := x.d.tryJoinLock()
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	atomic.StoreUint64(&r.ranks[1].Position, positionLeft)
	x.expect(x.s.Sweep, "") // somebody is joining
	unlock()
	// The name belongs to the next generation meanwhile: that one must stay.
	x.replace(recordName(1), newRecordBytes(1, 2))
	x.expect(x.s.Sweep, "-comm-0000000000000001.shm rm:comm-0000000000000001.shm")
	if !x.exists(recordName(1)) {
		t.Fatal("the next generation was removed")
	}
	next := x.expect(x.s.Scan, "+comm-0000000000000001.shm").Records[0]
	join(next, b)
	x.expect(x.s.Sweep, "")
	x.dead[b] = true
	x.expect(x.s.Sweep, "-comm-0000000000000001.shm rm:comm-0000000000000001.shm")
	if x.exists(recordName(1)) {
		t.Error("still there")
	}
}

// A rank may register between the first look and the lock.
func TestSweepLooksAgainUnderTheLock(t *testing.T) {
	x := newScanTest(t)
	putFile(t, x.d, recordName(1), newRecordBytes(1, 2))
	r := x.expect(x.s.Scan, "+comm-0000000000000001.shm").Records[0]
	join(r, Process{10, 1})
	x.s.alive = func(p Process) (bool, error) {
		if x.asked++; x.asked == 1 {
			join(r, Process{11, 1})
		}
		return p.PID == 11, nil
	}
	x.expect(x.s.Sweep, "")
	if !x.exists(recordName(1)) || x.asked != 2 {
		t.Errorf("removed a record that a rank had just joined; asked %d times", x.asked)
	}
}

func TestSweepRemovesDrainedRingsOfTheDead(t *testing.T) {
	x := newScanTest(t)
	p := Process{3, 4}
	putFile(t, x.d, ringName(p), newRingBytes(p, 8))
	r := x.expect(x.s.Scan, "+ring-3-4.shm").Rings[0]
	put(r.abi, r.cells, sent(6))
	x.expect(x.s.Sweep, "")
	x.dead[p] = true
	x.expect(x.s.Sweep, "") // not before its samples are read
	if err := x.d.RemoveRing(r); !errors.Is(err, ErrBusy) {
		t.Errorf("removing a ring with samples: %v", err)
	}
	if got := drainAll(t, r); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	x.expect(x.s.Sweep, "-ring-3-4.shm rm:ring-3-4.shm")
	if x.exists(ringName(p)) {
		t.Error("still there")
	}
}

// Not knowing whether a process lives removes nothing, and is said.
func TestSweepTakesUnknownForAlive(t *testing.T) {
	x := newScanTest(t)
	p := Process{3, 4}
	putFile(t, x.d, ringName(p), newRingBytes(p, 8))
	putFile(t, x.d, recordName(1), newRecordBytes(1, 1))
	join(x.expect(x.s.Scan, "+comm-0000000000000001.shm +ring-3-4.shm").Records[0], p)
	unknown := errors.New("too many open files")
	x.s.alive = func(Process) (bool, error) { return true, unknown }
	var c Changes
	if err := x.s.Sweep(&c); !errors.Is(err, unknown) || c.names() != "" {
		t.Errorf("got %q, %v", c.names(), err)
	}
	if !x.exists(ringName(p)) || !x.exists(recordName(1)) {
		t.Error("a file of a process that may live was removed")
	}
}

// One process may have hundreds of communicators: a sweep asks about it once.
func TestSweepAsksOnceAboutAProcess(t *testing.T) {
	x := newScanTest(t)
	p := Process{3, 4}
	for id := range uint64(5) {
		putFile(t, x.d, recordName(id), newRecordBytes(id, 1))
	}
	var c Changes
	if err := x.s.Scan(&c); err != nil || len(c.Records) != 5 {
		t.Fatal(c.names(), err)
	}
	for _, r := range c.Records {
		join(r, p)
	}
	x.asked = 0
	x.expect(x.s.Sweep, "")
	if x.asked != 1 {
		t.Errorf("asked %d times", x.asked)
	}
}

// With real processes: killed, and not by the test's word.
func TestSweepWithRealProcesses(t *testing.T) {
	x := newScanTest(t)
	x.s.alive = Process.Alive
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p, own := processOf(t, child.Process.Pid), thisProcess(t)
	putFile(t, x.d, ringName(p), newRingBytes(p, 8))
	putFile(t, x.d, ringName(own), newRingBytes(own, 8))
	putFile(t, x.d, recordName(1), newRecordBytes(1, 2))
	var c Changes
	if err := x.s.Scan(&c); err != nil || len(c.Rings) != 2 || len(c.Records) != 1 {
		t.Fatal(c.names(), err)
	}
	join(c.Records[0], p)
	x.expect(x.s.Sweep, "")
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // reports the signal
	x.expect(x.s.Sweep, "-comm-0000000000000001.shm -"+ringName(p)+" rm:comm-0000000000000001.shm rm:"+ringName(p))
	if !x.exists(ringName(own)) {
		t.Error("the ring of a living process was removed")
	}
}
