package nccltuner

import "testing"

func TestNames(t *testing.T) {
	for name, want := range map[string]uint64{
		"comm-0000000000000000.shm": 0,
		"comm-00000000deadbeef.shm": 0xdeadbeef,
		"comm-ffffffffffffffff.shm": 1<<64 - 1,
	} {
		if got, ok := parseRecordName(name); !ok || got != want || recordName(got) != name {
			t.Errorf("%s: got %x, %v", name, got, ok)
		}
	}
	for _, name := range []string{
		"", "comm-.shm", "comm-123.shm", "comm-00000000DEADBEEF.shm", "comm-00000000deadbee_.shm", "comm-+000000deadbeef.shm",
		"comm-00000000deadbeef", "comm-00000000deadbeef.shm.tmp", "Comm-00000000deadbeef.shm", "comm-00000000deadbeef0.shm",
		"comm-0x000000deadbeef.shm", "ring-1-2.shm",
	} {
		if id, ok := parseRecordName(name); ok {
			t.Errorf("%q is taken for the record of %x", name, id)
		}
	}
	for name, want := range map[string]Process{
		"ring-1-2.shm": {1, 2},
		"ring-2147483647-18446744073709551615.shm": {1<<31 - 1, 1<<64 - 1},
	} {
		if got, ok := parseRingName(name); !ok || got != want || ringName(got) != name {
			t.Errorf("%s: got %v, %v", name, got, ok)
		}
	}
	for _, name := range []string{
		"", "ring-.shm", "ring-1.shm", "ring-1-.shm", "ring--1.shm", "ring-0-2.shm", "ring-1-0.shm", "ring-01-2.shm", "ring-1-02.shm",
		"ring-+1-2.shm", "ring-1-+2.shm", "ring-1--2.shm", "ring-1-2-3.shm", "ring-2147483648-1.shm",
		"ring-1-18446744073709551616.shm", "ring-1-2.shm ", "ring-1_0-2.shm", "comm-0000000000000000.shm",
	} {
		if p, ok := parseRingName(name); ok {
			t.Errorf("%q is taken for the ring of %v", name, p)
		}
	}
}

// One communicator and one process have exactly one name.
func FuzzNames(f *testing.F) {
	for _, s := range []string{"comm-00000000deadbeef.shm", "ring-123-456.shm", "ring-0123-456.shm", "comm-.shm", "join.lock", "ring-1--1.shm"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		id, isRecord := parseRecordName(name)
		if isRecord && recordName(id) != name {
			t.Errorf("%q and %q are one record", name, recordName(id))
		}
		p, isRing := parseRingName(name)
		if isRing && (ringName(p) != name || !p.valid()) {
			t.Errorf("%q and %q are one ring", name, ringName(p))
		}
		if isRecord && isRing {
			t.Errorf("%q is both", name)
		}
	})
}
