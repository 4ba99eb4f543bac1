package live

import (
	"fmt"
	"strings"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/units"
)

// A command that leaves a program in the background, in a session of its own, and ends before that has come to NCCL: run says that it lives
// on, the daemon stays, the program is tuned, and the daemon ends after it with its store written.
func TestWhatACommandLeavesBehindIsTuned(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	var ranks []string
	for _, word := range r.ranks("behind", 9000, 3000) {
		ranks = append(ranks, units.Quote(word))
	}
	server := "sleep 3; exec " + strings.Join(ranks, " ")
	p := r.run("--", "sh", "-c", fmt.Sprintf("setsid sh -c %s >/dev/null 2>&1 </dev/null &", units.Quote(server)))
	if code := p.all(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, p.err.String())
	}
	p.wants("what the command has started still runs (", " sh", "stays for it")
	if strings.Contains(p.err.String(), "nothing was tuned") {
		t.Errorf("it says what is not known yet:\n%s", p.err.String())
	}
	st := r.daemon("the daemon, after its run", anyDaemon)
	r.wait("the daemon's end", func() bool { return r.gone(st.PID) })
	if rep := r.compare("behind"); rep.Compared != 9000 || rep.Chosen == 0 {
		t.Errorf("%d of 9000 calls, %d chosen", rep.Compared, rep.Chosen)
	}
	if n := r.stored(); n < 3 {
		t.Errorf("%d choices in the store, want some", n)
	}
	r.noDaemon()
}

// What ends soon after its command, as helpers do that read to the end of a pipe, is waited for and not worth a word.
func TestWhatEndsSoonAfterItsCommand(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	p := r.run("--", "sh", "-c", "setsid sleep 0.2 >/dev/null 2>&1 </dev/null &")
	if code := p.all(); code != 0 || strings.Contains(p.err.String(), "still runs") {
		t.Errorf("exit code %d:\n%s", code, p.err.String())
	}
	r.noDaemon()
}
