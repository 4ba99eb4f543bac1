package nccltuner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// thisProcess is the test program's own identity, read by other means than the code under test: Fields is good enough for
// a name that we know.
func thisProcess(t testing.TB) Process { return processOf(t, os.Getpid()) }

func processOf(t testing.TB, pid int) Process {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	st, err := parseStat(text)
	if err != nil {
		t.Fatal(err)
	}
	return Process{uint32(pid), st.startTime}
}

// statLine is a line of /proc/PID/stat with the fields that we read put in.
func statLine(comm, state, threads, start string) string {
	return "12 (" + comm + ") " + state + " 1 12 12 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 " + threads + " 0 " + start + " 1000 200 18446744073709551615\n"
}

func TestParseStat(t *testing.T) {
	for _, comm := range []string{"cat", "", "a b", "x) R 1 2 (y", "))))", "((", "a\nb", ") Z 0 0 0"} {
		got, err := parseStat([]byte(statLine(comm, "S", "17", "987654321")))
		if want := (procStat{'S', 17, 987654321}); err != nil || got != want {
			t.Errorf("%q: got %v, %v", comm, got, err)
		}
	}
	for _, text := range []string{
		"", "12", "12 (cat", "12 cat) S", ")(", "12 (cat) S 1 2 3", statLine("cat", "S", "-1", "5"), statLine("cat", "S", "1", "-5"),
		statLine("cat", "S", "1", "x"), statLine("cat", "SS", "1", "5"), statLine("cat", "S", "1", "18446744073709551616"),
	} {
		if got, err := parseStat([]byte(text)); !errors.Is(err, ErrBadStat) {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	for _, c := range []struct {
		st   procStat
		gone bool
	}{
		{procStat{'R', 1, 5}, false}, {procStat{'Z', 1, 5}, true}, {procStat{'X', 0, 5}, true}, {procStat{'D', 1, 5}, false},
		{procStat{'Z', 4, 5}, false}, // only the main thread has ended
	} {
		if c.st.gone() != c.gone {
			t.Errorf("%v: gone is %v", c.st, !c.gone)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(statLine("cat", "S", "1", "5")))
	f.Add([]byte(statLine(") Z (", "R", "3", "18446744073709551615")))
	f.Add([]byte("1 ()"))
	if own, err := os.ReadFile("/proc/self/stat"); err != nil {
		f.Fatal(err)
	} else {
		f.Add(own)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		st, err := parseStat(text)
		if err != nil {
			if !errors.Is(err, ErrBadStat) {
				t.Errorf("error %v has no sentinel", err)
			}
			return
		}
		if tail := string(text[strings.LastIndexByte(string(text), ')')+1:]); !strings.Contains(tail, string(rune(st.state))) && st.state < 128 {
			t.Errorf("state %q is not in %q", st.state, tail)
		}
	})
}

func TestAlive(t *testing.T) {
	own := thisProcess(t)
	expect := func(p Process, want bool) {
		t.Helper()
		if got, err := p.Alive(); got != want || err != nil {
			t.Errorf("%+v: got %v, %v, want %v", p, got, err, want)
		}
	}
	expect(own, true)
	expect(Process{own.PID, own.StartTime + 1}, false) // the pid was reused
	expect(Process{0, 5}, false)
	expect(Process{1 << 31, 5}, false)
	expect(Process{own.PID, 0}, false)

	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p := processOf(t, child.Process.Pid)
	expect(p, true)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Not reaped yet: the process is a zombie and runs nothing any more.
	deadline := time.Now().Add(10 * time.Second)
	for {
		if living, err := p.Alive(); err != nil {
			t.Fatal(err)
		} else if !living {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("a killed child lives for 10 s")
		}
		time.Sleep(time.Millisecond)
	}
	_ = child.Wait() // reports the signal
	expect(p, false)
}
