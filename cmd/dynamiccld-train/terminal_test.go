package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal opens a pseudo-terminal and gives both ends.
func terminal(t *testing.T) (people, device *os.File) {
	t.Helper()
	people, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { people.Close() })
	if err := unix.IoctlSetPointerInt(int(people.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(people.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	device, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	return people, device
}

// On a terminal there is a bar in one line.
func TestProgressBar(t *testing.T) {
	people, device := terminal(t)
	now := time.Unix(0, 0)
	f := &fake{best: 3.25, hasBest: true}
	f.recipe.Updates = 100
	o := options{}
	o.recipe.Updates = 100
	p := newProgress(&program{stderr: device, now: func() time.Time { return now }}, o, 0)
	for update := 1; update <= 50; update++ {
		now = now.Add(100 * time.Millisecond)
		p.show(update, 0.5, f)
	}
	p.end()
	if _, err := device.WriteString("done\n"); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(text.String(), "done") {
		n, err := people.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(buf[:n])
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "done\r\n"), "\r")
	if len(lines) != 1+25+1 { // every 200 ms, and the clearing
		t.Errorf("drawn %d times: %q", len(lines), text.String())
	}
	last := lines[len(lines)-2]
	for _, want := range []string{"10.0/s", "loss 0.500", "regret 3.250", "left 5s", "50", "100", "50%", "█"} {
		if !strings.Contains(last, want) {
			t.Errorf("%q is not in %q", want, last)
		}
	}
	if strings.Contains(text.String(), "\n") && strings.Count(text.String(), "\n") > 1 {
		t.Errorf("more than one line: %q", text.String())
	}
}
