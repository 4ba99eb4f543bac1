package daemon

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// alarm is what the loop sleeps by: a timerfd. A timer of Go's costs four switches a wait and not one, for the runtime waits in whole
// milliseconds and then for the rest, and its own watchdog wakes up beside.
type alarm struct {
	file  *os.File
	conn  syscall.RawConn
	rung  atomic.Bool
	wait  time.Duration
	armed bool
	ready func(fd uintptr) bool // made once: the loop does not allocate
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a timer: %w", err)
	}
	a := &alarm{file: os.NewFile(uintptr(fd), "timerfd")}
	if a.conn, err = a.file.SyscallConn(); err != nil {
		_ = a.file.Close() // of no use to anybody
		return nil, fmt.Errorf("making a timer: %w", err)
	}
	a.ready = a.step
	return a, nil
}

// sleep returns after so long, or when somebody rings; now and then earlier. One goroutine may sleep.
func (a *alarm) sleep(wait time.Duration) error {
	a.wait, a.armed = max(wait, 1), false // 0 would stop the timer
	return a.conn.Read(a.ready)
}

// step is called before each time that the goroutine is parked. The timer is set here and not before, since the poller has forgotten by
// now what it had heard; whoever rang until then has left word, and who rings later has the timer fire.
func (a *alarm) step(fd uintptr) bool {
	if a.armed {
		a.rung.Store(false)
		return true
	}
	a.armed = true
	a.set(fd, a.wait)
	return a.rung.Swap(false)
}

// ring ends the sleep under way, or else the next one.
func (a *alarm) ring() {
	a.rung.Store(true)
	_ = a.conn.Control(func(fd uintptr) { a.set(fd, 1) }) // closed: nobody sleeps
}

// set has the timer fire once. It is not read: setting it makes it unreadable again, and the poller hears of each time that it fires.
func (a *alarm) set(fd uintptr, after time.Duration) {
	_ = unix.TimerfdSettime(int(fd), 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(after))}, nil) // it can refuse neither
}

func (a *alarm) close() error { return a.file.Close() }
