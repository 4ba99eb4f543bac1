package nccltuner

import (
	"fmt"
	"strings"
	"testing"
)

func elsewhere(data []byte) []byte {
	h := heapMapping("", data)
	h.header().PidNamespace = pidNamespace() + 1
	return h.data
}

// What processes in another PID namespace use is left alone, whatever is true of their pids here, and deleted once nobody uses it.
func TestSweepLeavesFilesOfAnotherNamespaceInUse(t *testing.T) {
	x := newScanTest(t)
	p, record := Process{3, 4}, newRecordBytes(7, 1)
	x.dead[p] = true
	putFile(t, x.d, ringName(p), elsewhere(newRingBytes(p, 8)))
	putFile(t, x.d, recordName(7), elsewhere(record))
	ring, err := mapFile(x.d.fd, ringName(p), x.d.uid, RingBytes) // with its descriptor closed, as processes have it
	if err != nil {
		t.Fatal(err)
	}
	mapped, err := mapFile(x.d.fd, recordName(7), x.d.uid, recordSize+rankSize)
	if err != nil {
		t.Fatal(err)
	}
	x.expect(x.s.Scan, "!comm-0000000000000007.shm !ring-3-4.shm")
	x.expect(x.s.Sweep, "")
	x.expect(x.s.Scan, "") // said once
	if err := ring.close(); err != nil {
		t.Fatal(err)
	}
	x.expect(x.s.Sweep, "rm:ring-3-4.shm")
	if err := mapped.close(); err != nil {
		t.Fatal(err)
	}
	x.expect(x.s.Sweep, "rm:comm-0000000000000007.shm")
}

// A ring that is being made says nothing yet of its process's namespace, and neither does its name: who makes it has it open.
func TestSweepLeavesAnUnfinishedRingThatIsOpen(t *testing.T) {
	x := newScanTest(t)
	p := Process{3, 4}
	x.dead[p] = true
	putFile(t, x.d, ringName(p), make([]byte, RingBytes))
	ring, err := mapFile(x.d.fd, ringName(p), x.d.uid, RingBytes)
	if err != nil {
		t.Fatal(err)
	}
	x.expect(x.s.Scan, "")
	x.expect(x.s.Sweep, "")
	if err := ring.close(); err != nil {
		t.Fatal(err)
	}
	x.expect(x.s.Sweep, "rm:ring-3-4.shm")
}

func TestHolderOfTheLock(t *testing.T) {
	own := pidNamespace()
	if own == 0 {
		t.Fatal("this process's PID namespace is not known")
	}
	for _, tc := range []struct {
		text string
		want Holder
		says string
	}{
		{"", Holder{}, "has not said its pid"},
		{"nonsense\n13\n", Holder{}, "has not said its pid"},
		{"4711", Holder{PID: 4711}, "process 4711"},
		{"4711\n13\n", Holder{PID: 4711}, "process 4711"},
		{fmt.Sprintf("4711\n13\n%d\n", own), Holder{PID: 4711}, "process 4711"},
		{"4711\n13\n0\n", Holder{PID: 4711}, "process 4711"},
		{fmt.Sprintf("4711\n13\n%d\n", own+1), Holder{Elsewhere: true}, "another PID namespace"},
	} {
		if got := ParseHolder(tc.text); got != tc.want || !strings.Contains(got.String(), tc.says) {
			t.Errorf("%q: %+v, %v", tc.text, got, got)
		}
	}
}
