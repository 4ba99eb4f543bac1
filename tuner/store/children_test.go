package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// children are what the test binary does when a test starts it as a process of its own.
var children = map[string]func(path string){
	"put-forever": putForever,
	"full":        full,
	"hold":        hold,
}

func child(t testing.TB, mode, path string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(exe)
	c.Env = append(os.Environ(), "DYN_STORE_CHILD="+mode, "DYN_STORE_PATH="+path)
	return c
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// putForever writes batch after batch, each with its number as the cost, and says which are done.
func putForever(path string) {
	s, err := Open(path, Options{})
	check(err)
	for i := 1; ; i++ {
		check(s.Put(batchOf(240, float64(i))))
		fmt.Println(i)
	}
}

// hold keeps the store open until it is killed, or a minute.
func hold(path string) {
	_, err := Open(path, Options{})
	check(err)
	fmt.Println("open")
	time.Sleep(time.Minute) // not for ever: a test that dies must not leave it behind
}

// full fills a store up to a file size limit that stands for the disk's end.
func full(path string) {
	signal.Ignore(syscall.SIGXFSZ) // the write then fails with EFBIG
	limit := func(bytes uint64) {
		check(unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}))
	}
	limit(10 << 10) // less than a new store
	if _, err := Open(path, Options{}); !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "free some space") || !strings.Contains(err.Error(), "ulimit -f") {
		check(fmt.Errorf("creating on a full disk: %v", err))
	}
	limit(600 << 10) // bbolt grows a file by doubling
	check(fillUp(path, func() { limit(1 << 30) }))
}

// fillUp writes until no space is left, and checks that nothing is lost and that it goes on once there is space.
func fillUp(path string, free func()) error {
	s, err := Open(path, Options{})
	if err != nil {
		return fmt.Errorf("after a failed creation: %w", err)
	}
	n := 0
	batch := batchOf(240, 5000)
	for ; err == nil && n < 1000; n++ {
		for i := range batch {
			batch[i].Key.NCCLVersion = n
		}
		err = s.Put(batch)
	}
	if !errors.Is(err, ErrFull) || n < 2 {
		return fmt.Errorf("after %d batches: %v", n, err)
	}
	intact := func(s *Store, batches int) error {
		st, err := s.Stats()
		if err == nil && (st.Records != batches*240 || st.Bad != 0) {
			err = fmt.Errorf("%+v, want %d records", st, batches*240)
		}
		return err
	}
	if err := intact(s, n-1); err != nil {
		return fmt.Errorf("full: %w", err)
	}
	if err := s.Put(batch); !errors.Is(err, ErrFull) {
		return fmt.Errorf("still full: %v", err)
	}
	if err := s.Close(); err != nil {
		return err
	}
	if s, err = Open(path, Options{}); err != nil { // what the failed writes left must not look corrupt
		return fmt.Errorf("opening a full store: %w", err)
	}
	if err := intact(s, n-1); err != nil {
		return fmt.Errorf("reopened: %w", err)
	}
	free()
	if err := s.Put(batch); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	if err := intact(s, n); err != nil {
		return fmt.Errorf("with space again: %w", err)
	}
	return s.Close()
}
