package store

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"dynamiccl/tuner"

	"golang.org/x/sys/unix"
)

// kill -9 in the middle of Put: the file opens, is whole, and holds one batch entirely: the last acknowledged one or the
// one after it.
func TestKilledInTheMiddleOfPut(t *testing.T) {
	r := newRand(t)
	path := storePath(t)
	rounds := 6
	if os.Getenv("DYN_LONG") != "" {
		rounds = 200
	}
	for round := range rounds {
		c := child(t, "put-forever", path)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		last := 0
		killAt := 2 + r.IntN(8)
		for lines.Scan() {
			if last, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(err)
			}
			if last == killAt {
				time.AfterFunc(time.Duration(r.IntN(8000))*time.Microsecond, func() { c.Process.Kill() })
			}
		}
		c.Wait() // killed: its error says so
		if last < killAt {
			t.Fatalf("round %d: the child ended by itself after batch %d", round, last)
		}
		s := mustOpen(t, path, Options{})
		all := loadAll(t, s)
		sameAll(t, all, reordered(all[0].CostNs))
		if got := int(all[0].CostNs); got != last && got != last+1 {
			t.Fatalf("round %d: batch %d was acknowledged, the file holds batch %d", round, last, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(verifyPath(path), boltCheck(t, path)); err != nil {
			t.Fatal(err)
		}
	}
}

// reordered is the batch of putForever in the order of keys, which is by name.
func reordered(cost float64) (batch []tuner.Learned) {
	for _, c := range []int{2, 4, 0, 1, 3} { // AllGather, AllReduce, Broadcast, Reduce, ReduceScatter
		batch = append(batch, batchOf(240, cost)[c*48:c*48+48]...)
	}
	return batch
}

// The lock of a process that dies is free at once.
func TestLockOfAKilledProcess(t *testing.T) {
	path := filled(t, 3)
	c := child(t, "hold", path)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if !bufio.NewScanner(out).Scan() {
		t.Fatal("the child did not open the store")
	}
	if _, err := Open(path, Options{LockTimeout: 50 * time.Millisecond}); !errors.Is(err, ErrLocked) {
		t.Errorf("while another process holds it: %v", err)
	}
	c.Process.Kill()
	c.Wait()
	s := mustOpen(t, path, Options{LockTimeout: 50 * time.Millisecond})
	if n := len(loadAll(t, s)); n != 3 {
		t.Errorf("%d records", n)
	}
}

// A disk that ends, as a file size limit in a process of its own: needs no privilege.
func TestFullDiskByLimit(t *testing.T) {
	if out, err := child(t, "full", storePath(t)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// A disk that ends, as a small tmpfs; where mounting is not allowed the limit above has shown the same.
func TestFullDiskByTmpfs(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=600k"); err != nil {
		t.Logf("no tmpfs (%v): checking only that the error of a full device is known", err)
		if err := wrap("writing", dir, unix.ENOSPC); !errors.Is(err, ErrFull) {
			t.Fatal(err)
		}
		return
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	ballast := filepath.Join(dir, "ballast")
	path := filepath.Join(dir, "state.db")
	if err := os.WriteFile(ballast, make([]byte, 590<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); !errors.Is(err, ErrFull) {
		t.Fatalf("creating on a full disk: %v", err)
	}
	if err := os.Truncate(ballast, 200<<10); err != nil {
		t.Fatal(err)
	}
	if err := fillUp(path, func() { os.Remove(ballast) }); err != nil {
		t.Fatal(err)
	}
}
