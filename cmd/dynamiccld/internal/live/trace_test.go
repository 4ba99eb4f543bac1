package live

import "testing"

// A trace that the disk has no room for is said where somebody sees it: the daemon's log goes with the daemon.
func TestTraceThatEndsIsSaid(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	p := r.run(append([]string{"--trace", "/dev/full", "--"}, r.ranks("traced", 1500, 3000)...)...)
	if code := p.all(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.wants("the trace ended early: write /dev/full: no space left on device", "in total")
}
