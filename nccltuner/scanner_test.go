package nccltuner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// scanTest is a scanner of a fresh directory with processes that the test starts and ends.
type scanTest struct {
	*testing.T
	d     *Dir
	s     *Scanner
	dead  map[Process]bool
	asked int
}

func newScanTest(t *testing.T) *scanTest {
	d := openTestDir(t)
	x := &scanTest{T: t, d: d, s: NewScanner(d), dead: map[Process]bool{}}
	x.s.alive = func(p Process) (bool, error) { x.asked++; return !x.dead[p], nil }
	t.Cleanup(func() {
		if err := x.s.Close(); err != nil {
			t.Error(err)
		}
	})
	return x
}

// names says what a scan or sweep found, one word a finding.
func (c *Changes) names() string {
	var all []string
	for _, r := range c.Records {
		all = append(all, "+"+r.Name())
	}
	for _, r := range c.Rings {
		all = append(all, "+"+r.Name())
	}
	for _, r := range c.GoneRecords {
		all = append(all, "-"+r.Name())
	}
	for _, r := range c.GoneRings {
		all = append(all, "-"+r.Name())
	}
	for _, n := range c.Removed {
		all = append(all, "rm:"+n)
	}
	for _, err := range c.Rejected {
		name := strings.TrimPrefix(err.Error(), "opening ")
		all = append(all, "!"+name[:strings.IndexAny(name, ": ")])
	}
	return strings.Join(all, " ")
}

func (x *scanTest) expect(what func(*Changes) error, want string) *Changes {
	x.Helper()
	var c Changes
	if err := what(&c); err != nil {
		x.Fatal(err)
	}
	if got := c.names(); got != want {
		x.Errorf("got %q, want %q", got, want)
	}
	for _, r := range c.GoneRecords {
		if err := r.Close(); err != nil {
			x.Error(err)
		}
	}
	for _, r := range c.GoneRings {
		if err := r.Close(); err != nil {
			x.Error(err)
		}
	}
	return &c
}

// replace puts a new file under a name as ranks do: another inode.
func (x *scanTest) replace(name string, data []byte) {
	x.Helper()
	fresh := putFile(x, x.d, "fresh", data)
	if err := os.Rename(fresh, filepath.Join(x.d.Path(), name)); err != nil {
		x.Fatal(err)
	}
}

func (x *scanTest) remove(name string) {
	x.Helper()
	if err := os.Remove(filepath.Join(x.d.Path(), name)); err != nil {
		x.Fatal(err)
	}
}

func (x *scanTest) exists(name string) bool {
	_, err := os.Lstat(filepath.Join(x.d.Path(), name))
	return err == nil
}

func TestScanFindsFiles(t *testing.T) {
	x := newScanTest(t)
	ring := Process{3, 4}
	x.expect(x.s.Scan, "")
	putFile(t, x.d, recordName(2), newRecordBytes(2, 2))
	putFile(t, x.d, recordName(1), newRecordBytes(1, 2))
	putFile(t, x.d, ringName(ring), newRingBytes(ring, 8))
	for _, name := range []string{"daemon.lock", "join.lock", "control.sock"} {
		putFile(t, x.d, name, nil)
	}
	x.expect(x.s.Scan, "+comm-0000000000000001.shm +comm-0000000000000002.shm +ring-3-4.shm")
	x.expect(x.s.Scan, "")
	// The file's inode is the generation.
	x.replace(recordName(1), newRecordBytes(1, 3))
	c := x.expect(x.s.Scan, "+comm-0000000000000001.shm -comm-0000000000000001.shm")
	if c.Records[0].Info().NRanks != 3 || c.GoneRecords[0].Info().NRanks != 2 {
		t.Error("the generations are mixed up")
	}
	x.remove(ringName(ring))
	x.remove(recordName(2))
	x.expect(x.s.Scan, "-comm-0000000000000002.shm -ring-3-4.shm")
	x.expect(x.s.Scan, "")
}

// A process that ends removes its ring itself; what it left there still arrives.
func TestRingIsReadAfterItsFileIsGone(t *testing.T) {
	x := newScanTest(t)
	p := Process{3, 4}
	putFile(t, x.d, ringName(p), newRingBytes(p, 8))
	r := x.expect(x.s.Scan, "+ring-3-4.shm").Rings[0]
	put(r.abi, r.cells, sent(6))
	x.remove(ringName(p))
	var c Changes
	if err := x.s.Scan(&c); err != nil || len(c.GoneRings) != 1 || c.GoneRings[0] != r {
		t.Fatalf("got %q, %v", c.names(), err)
	}
	if got := drainAll(t, r); len(got) != 1 || got[0] != 6 {
		t.Errorf("got %v", got)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// What is not ours is said once an inode and stays as it is.
func TestScanRejectsOnce(t *testing.T) {
	x := newScanTest(t)
	version := newRecordBytes(2, 1)
	heapHeader := heapMapping("", version)
	heapHeader.header().Version = ABIVersion + 1
	for name, data := range map[string][]byte{
		recordName(1):              []byte("what is this, 32 bytes or more of it?"),
		recordName(2):              heapHeader.data,
		ringName(Process{1, 1}):    newRingBytes(Process{1, 1}, 8)[:300],
		"notes.txt":                []byte("hello"),
		"ring-01-1.shm":            newRingBytes(Process{1, 1}, 8),
		"comm-1.shm":               newRecordBytes(1, 1),
		recordName(3) + ".partial": nil,
	} {
		putFile(t, x.d, name, data)
	}
	inUse, err := mapFile(x.d.fd, recordName(2), x.d.uid, recordSize+rankSize)
	if err != nil {
		t.Fatal(err)
	}
	defer inUse.close()
	c := x.expect(x.s.Scan, "!comm-0000000000000001.shm !comm-0000000000000002.shm !comm-0000000000000003.shm.partial "+
		"!comm-1.shm !notes.txt !ring-01-1.shm !ring-1-1.shm")
	for i, want := range []error{ErrGarbage, ErrVersion, ErrForeign, ErrForeign, ErrForeign, ErrForeign, ErrTorn} {
		if !errors.Is(c.Rejected[i], want) {
			t.Errorf("got %v, want %v", c.Rejected[i], want)
		}
	}
	x.dead[Process{1, 1}] = true
	verdict := x.s.files["notes.txt"].verdict
	for range 3 {
		x.expect(x.s.Scan, "")
		x.expect(x.s.Sweep, "")
	}
	if x.s.files["notes.txt"].verdict != verdict {
		t.Error("a file that cannot become ours was looked into again")
	}
	if !x.exists(recordName(1)) || !x.exists(ringName(Process{1, 1})) || !x.exists("notes.txt") {
		t.Error("a rejected file was removed")
	}
	// Another file under the name is another matter.
	x.replace(recordName(1), []byte("still not a record, but another inode"))
	x.expect(x.s.Scan, "!comm-0000000000000001.shm")
	x.replace(recordName(1), newRecordBytes(1, 1))
	x.expect(x.s.Scan, "+comm-0000000000000001.shm")
	// Written in place, same inode: looked at again, since its stamp changed.
	time.Sleep(20 * time.Millisecond) // file times may be as coarse as a clock tick
	putFile(t, x.d, recordName(2), newRecordBytes(2, 1))
	x.expect(x.s.Scan, "+comm-0000000000000002.shm")
}

// A file that its creator has not finished is not an error and is opened once it is ready.
func TestScanWaitsForTheCreator(t *testing.T) {
	x := newScanTest(t)
	p := Process{3, 4}
	ring := putFile(t, x.d, ringName(p), nil)
	record := putFile(t, x.d, recordName(1), make([]byte, recordSize+rankSize))
	x.expect(x.s.Scan, "")
	x.expect(x.s.Scan, "")
	write := func(path string, data []byte) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR, 0) // in place: same inode, same size, perhaps the same time
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(data, 0); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write(ring, newRingBytes(p, 8))
	write(record, newRecordBytes(1, 1))
	x.expect(x.s.Scan, "+comm-0000000000000001.shm +ring-3-4.shm")
}

// A file that was mapped while its creator still made it longer is no torn one.
func TestFileThatGrewIsNotReady(t *testing.T) {
	x := newScanTest(t)
	whole := newRingBytes(Process{1, 1}, 64)
	for size, want := range map[int]error{len(whole): ErrNotReady, len(whole) - 64: ErrTorn} {
		putFile(t, x.d, ringName(Process{1, 1}), whole[:len(whole)-64])
		m, err := mapFile(x.d.fd, ringName(Process{1, 1}), x.d.uid, RingBytes)
		if err != nil {
			t.Fatal(err)
		}
		putFile(t, x.d, ringName(Process{1, 1}), whole[:size])
		_, err = newRing(m, Process{1, 1})
		if got := refused(x.d.fd, m, err); !errors.Is(err, ErrTorn) || !errors.Is(got, want) || want == ErrNotReady && errors.Is(got, ErrTorn) {
			t.Errorf("%d bytes of %d by then: %v", size, len(whole), got)
		}
	}
}

func TestScanSaysThatTheDirectoryIsGone(t *testing.T) {
	x := newScanTest(t)
	if err := os.Remove(x.d.Path()); err != nil {
		t.Fatal(err)
	}
	var c Changes
	if err := x.s.Scan(&c); !errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), x.d.Path()) {
		t.Errorf("got %v", err)
	}
}

// More names than one buffer of the listing holds.
func TestScanOfManyFiles(t *testing.T) {
	x := newScanTest(t)
	x.s.buf = x.s.buf[:512]
	var want []string
	for id := range uint64(300) {
		putFile(t, x.d, recordName(id), newRecordBytes(id, 1))
		want = append(want, "+"+recordName(id))
	}
	x.expect(x.s.Scan, strings.Join(want, " "))
	if n := testing.AllocsPerRun(10, func() { x.expect(x.s.Scan, "") }); n > 20 {
		t.Errorf("%v allocations for a scan of 300 files in which nothing happened", n)
	}
	for id := range uint64(300) {
		x.remove(recordName(id))
		want[id] = "-" + recordName(id)
	}
	slices.Sort(want)
	x.expect(x.s.Scan, strings.Join(want, " "))
}

// A directory in which nothing happens is not listed again; one with a file that is not open, or that changed a moment ago, is.
func TestQuietDirectoryIsNotListed(t *testing.T) {
	x, ring := newScanTest(t), ringName(Process{3, 4})
	lists := func() bool {
		x.Helper()
		buf := x.s.buf
		x.s.buf = nil // getdents refuses that
		defer func() { x.s.buf = buf }()
		return x.s.Scan(&Changes{}) != nil
	}
	settle := func() {
		time.Sleep(150 * time.Millisecond)
		x.expect(x.s.Scan, "")
	}
	putFile(t, x.d, ring, newRingBytes(Process{3, 4}, 2))
	x.expect(x.s.Scan, "+"+ring)
	for try := 1; ; try++ { // this moment may be over on a busy machine
		if err := os.Chmod(x.d.Path(), 0o700); err != nil {
			t.Fatal(err)
		}
		x.expect(x.s.Scan, "")
		if lists() {
			break
		}
		if try == 20 {
			t.Fatal("what comes in this moment may not change the directory's time, and it is not listed")
		}
	}
	if settle(); lists() {
		t.Error("nothing happened, and the directory is listed")
	}
	if x.expect(x.s.Sweep, ""); !lists() {
		t.Error("after a sweep it is not listed")
	}
	settle()
	putFile(t, x.d, recordName(2), make([]byte, 0))
	for range 2 {
		x.expect(x.s.Scan, "")
		if settle(); !lists() {
			t.Error("a file is not ready, and nobody looks whether it is by now")
		}
	}
	putFile(t, x.d, recordName(2), newRecordBytes(2, 1))
	x.expect(x.s.Scan, "+"+recordName(2))
	settle()
	x.remove(ring)
	x.expect(x.s.Scan, "-"+ring)
}

// A store or a trace that a user keeps in the directory is nobody's stray file; the same names elsewhere mean nothing here.
func TestScanPassesOverWhatIsKept(t *testing.T) {
	x := newScanTest(t)
	x.s = NewScanner(x.d, filepath.Join(x.d.Path(), "mine.db"), x.d.Path()+"/trace.csv", "/elsewhere/notes.txt", "", "none")
	for _, name := range []string{StoreName, "mine.db", "trace.csv", "notes.txt"} {
		putFile(t, x.d, name, []byte("hello"))
	}
	x.expect(x.s.Scan, "!notes.txt")
	x.expect(x.s.Sweep, "")
}

// With how many scans it would cost to list the directory each time.
func BenchmarkScanNothingNew(b *testing.B) {
	for _, files := range []uint64{9, 300} {
		b.Run(fmt.Sprint(files, " files"), func(b *testing.B) {
			d := openTestDir(b)
			for id := range files {
				putFile(b, d, recordName(id), newRecordBytes(id, 8))
			}
			s := NewScanner(d)
			b.Cleanup(func() { _ = s.Close() })
			var c Changes
			scan := func() {
				if err := s.Scan(&c); err != nil {
					b.Fatal(err)
				}
			}
			scan()
			time.Sleep(150 * time.Millisecond)
			scan()
			b.ReportAllocs()
			for b.Loop() {
				scan()
			}
			perScan, began := float64(b.Elapsed())/float64(b.N), time.Now()
			const listings = 100
			for range listings {
				s.quiet = false
				scan()
			}
			b.ReportMetric(float64(time.Since(began))/listings/perScan, "listings/scan")
		})
	}
}
