package nccltuner

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// Process is one process for all time: pids are reused, the pair is not, within one PID namespace.
type Process struct {
	PID       uint32
	StartTime uint64 // clock ticks since boot, /proc/PID/stat field 22
}

// valid says whether such a process can exist. Invariant: pids fit 31 bits and are not 0.
func (p Process) valid() bool { return p.PID != 0 && p.PID <= 1<<31-1 && p.StartTime != 0 }

func (p Process) String() string { return "process " + strconv.FormatUint(uint64(p.PID), 10) }

// pidNamespace is that of this process, which it never leaves; 0: not known. No other one has the number while it lives.
var pidNamespace = sync.OnceValue(func() uint32 {
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return 0
	}
	return uint32(info.Sys().(*syscall.Stat_t).Ino)
})

// Elsewhere says that a PID namespace is not this process's: pids from there mean nothing here. What is not known, as in files of
// earlier releases, is taken for this one.
func Elsewhere(namespace uint32) bool {
	own := pidNamespace()
	return own != 0 && namespace != 0 && namespace != own
}

// Alive reads /proc. An error means that nobody knows, which callers take for alive: a file removed too early harms, one
// removed late does not.
func (p Process) Alive() (bool, error) {
	if !p.valid() {
		return false, nil
	}
	st, err := readStat(int(p.PID))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("asking whether %s lives: %w", p, err)
	}
	return st.startTime == p.StartTime && !st.gone(), nil
}

// ProcessOf is the process that has the pid now. An error of fs.ErrNotExist: none that runs.
func ProcessOf(pid uint32) (Process, error) {
	st, err := readStat(int(pid))
	if err == nil && st.gone() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return Process{pid, st.startTime}, nil
}

// Stopped says that a process does nothing until somebody lets it go on: SIGSTOP, a terminal's Ctrl-Z, a debugger.
func Stopped(pid int) bool {
	st, err := readStat(pid)
	return err == nil && (st.state == 'T' || st.state == 't')
}

// Sleeps says that a process waits for something. One that a signal is about to end does not: it is woken for that.
func Sleeps(pid int) bool {
	st, err := readStat(pid)
	return err == nil && st.state == 'S'
}

// Ended says that a process has ended, and only its number is kept for a parent that has not asked yet, or never does, as process 1 of
// many containers.
func Ended(pid int) bool {
	st, err := readStat(pid)
	return err == nil && st.gone()
}

// statBytes is more than /proc/PID/stat has: numbers of at most 20 digits, and a name of 16 bytes.
const statBytes = 1024

// procStat is what we need of /proc/PID/stat.
type procStat struct {
	state      byte   // field 3
	numThreads uint64 // field 20
	startTime  uint64 // field 22
}

// gone says that the process has ended and only waits for its parent. A main thread that ended before others looks the
// same but for the number of threads.
func (s procStat) gone() bool { return (s.state == 'Z' || s.state == 'X') && s.numThreads <= 1 }

func readStat(pid int) (procStat, error) {
	var buf [statBytes]byte
	text, err := readOnce("/proc/"+strconv.Itoa(pid)+"/stat", buf[:])
	if err != nil {
		return procStat{}, err
	}
	return parseStat(text)
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)). Field 2 is the program's name in parentheses and may itself hold
// spaces, parentheses and newlines; no later field can, so the last parenthesis ends it.
func parseStat(text []byte) (procStat, error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return procStat{}, fmt.Errorf("no program name: %w", ErrBadStat)
	}
	fields := bytes.Fields(text[end+1:])
	const first = 3 // number of fields[0]
	if len(fields) <= 22-first || len(fields[0]) != 1 {
		return procStat{}, fmt.Errorf("%d fields after the program name: %w", len(fields), ErrBadStat)
	}
	s := procStat{state: fields[0][0]}
	var err error
	if s.numThreads, err = strconv.ParseUint(string(fields[20-first]), 10, 32); err != nil {
		return procStat{}, fmt.Errorf("number of threads %q: %w", fields[20-first], ErrBadStat)
	}
	if s.startTime, err = strconv.ParseUint(string(fields[22-first]), 10, 64); err != nil {
		return procStat{}, fmt.Errorf("start time %q: %w", fields[22-first], ErrBadStat)
	}
	return s, nil
}
