package main

import (
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/lease"
	"dynamiccl/nccltuner"
)

// endsWithin is how long after a command what it started is given to end, too: helpers that wait for the end of a pipe.
const endsWithin = 500 * time.Millisecond

// leftBehind says what of the command lives on, where the daemon would end but for it: a server in the background may not have come to
// NCCL yet, and the daemon stays for it (service/unused.go).
func (r *runner) leftBehind() bool {
	if !r.daemon.Status.UntilUnused || !r.daemon.Alive() {
		return false
	}
	run := control.RunID(r.id)
	left := lease.Behind(r.cfg.Dir, run)
	for end := time.Now().Add(endsWithin); len(left) > 0 && time.Now().Before(end); left = lease.Behind(r.cfg.Dir, run) {
		time.Sleep(watchEvery / 4)
	}
	if len(left) == 0 {
		return false
	}
	if os.Getpid() == 1 {
		r.say("what the command has started still runs (%s) and ends now with this process, which is process 1 of its container, as all in it do; let the command wait for it", named(left))
		return true
	}
	r.say("what the command has started still runs (%s): daemon %d stays for it, and ends after it; `dynamiccld status` shows what it does",
		named(left), r.daemon.Status.PID)
	return true
}

// named are the numbers and names of the first few.
func named(left []nccltuner.Process) string {
	const most = 3
	var all []string
	for _, p := range left[:min(len(left), most)] {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID)) // it may have ended
		printable := strings.Map(func(c rune) rune {
			if !unicode.IsPrint(c) {
				return -1
			}
			return c
		}, string(name))
		all = append(all, strings.TrimSpace(fmt.Sprintf("%d %s", p.PID, printable)))
	}
	if more := len(left) - most; more > 0 {
		all = append(all, fmt.Sprintf("%d more", more))
	}
	return strings.Join(all, ", ")
}
