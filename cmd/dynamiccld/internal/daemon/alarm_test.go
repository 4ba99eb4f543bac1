package daemon

import (
	"sync"
	"testing"
	"time"
)

func newTestAlarm(t testing.TB) *alarm {
	t.Helper()
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.close() })
	return a
}

// slept is how long a sleep took, which must end.
func slept(t *testing.T, a *alarm, wait time.Duration) time.Duration {
	t.Helper()
	began, ended := time.Now(), make(chan error, 1)
	go func() { ended <- a.sleep(wait) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("a sleep of %v does not end", wait)
	}
	return time.Since(began)
}

func TestAlarmSleepsAsLongAsWanted(t *testing.T) {
	a := newTestAlarm(t)
	for range 5 {
		if got := slept(t, a, 30*time.Millisecond); got < 30*time.Millisecond {
			t.Errorf("slept %v of 30 ms", got)
		}
	}
	slept(t, a, 0)
}

// Whoever rings before a sleep or in it ends it, but once alone.
func TestAlarmIsRung(t *testing.T) {
	a := newTestAlarm(t)
	for range 20 {
		a.ring()
		a.ring()
		slept(t, a, time.Hour)
		time.AfterFunc(time.Millisecond, a.ring)
		slept(t, a, time.Hour)
	}
	if got := slept(t, a, 30*time.Millisecond); got < 30*time.Millisecond {
		t.Errorf("nobody rang, and a sleep of 30 ms took %v", got)
	}
}

// No ring is lost, whenever it comes: each is waited for.
func TestNoRingIsLost(t *testing.T) {
	a := newTestAlarm(t)
	var mu sync.Mutex
	word, heard := 0, 0
	told := make(chan struct{})
	go func() {
		defer close(told)
		for i := range 20_000 {
			mu.Lock()
			word = i + 1
			mu.Unlock()
			a.ring()
			for begin := time.Now(); i%64 == 0 && time.Since(begin) < 50*time.Microsecond; { // now and then the sleeper is parked
			}
		}
	}()
	for heard < 20_000 {
		slept(t, a, time.Hour)
		mu.Lock()
		heard = word
		mu.Unlock()
	}
	<-told
}

func TestAlarmDoesNotAllocate(t *testing.T) {
	a := newTestAlarm(t)
	if n := testing.AllocsPerRun(100, func() { _ = a.sleep(time.Microsecond) }); n != 0 {
		t.Errorf("%.1f allocations a sleep", n)
	}
}

func TestClosedAlarm(t *testing.T) {
	a := newTestAlarm(t)
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	a.ring()
	if a.sleep(time.Hour) == nil {
		t.Error("a closed alarm lets one sleep")
	}
}
