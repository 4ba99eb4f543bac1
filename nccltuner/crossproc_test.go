package nccltuner

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
)

// Ranks in C, as shipped, in processes of their own, against this publisher through a real file: every epoch runs the
// same version everywhere and no plan in force is overwritten.
func TestAgreementWithRankProcesses(t *testing.T) {
	seed := testSeed(t)
	const nRanks = 3
	epochs := 10000
	if os.Getenv("DYN_LONG") != "" {
		epochs = 1000000
	}
	program := filepath.Join(t.TempDir(), "rank")
	build := exec.Command("gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I.", "-o", program, "testdata/rank.c")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	d := openTestDir(t)
	path := putFile(t, d, recordName(5), newRecordBytes(5, nRanks))
	r, err := d.OpenRecord(5)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()

	var logs [nRanks]bytes.Buffer
	done := make(chan error, nRanks)
	for i := range nRanks {
		rank := exec.Command(program, path, strconv.Itoa(i), strconv.Itoa(epochs), strconv.FormatUint(seed*nRanks+uint64(i), 10))
		rank.Stdout = &logs[i]
		if err := rank.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			if err := rank.Wait(); err != nil {
				done <- fmt.Errorf("rank %d: %w", i, err)
				return
			}
			done <- nil
		}()
	}
	published := 0
	p := newPublisher(t, r)
	for running := nRanks; running > 0; {
		select {
		case err := <-done:
			running--
			if err != nil {
				t.Error(err) // its position stands still, so the others wait for it: end them
				_ = os.Truncate(path, 0)
			}
			continue
		default:
		}
		if published%100 == 99 {
			if next, err := NewPublisher(r); err == nil { // the daemon restarts
				p = next
			}
		}
		switch _, err := p.Publish(numberedSpec(published + 1)); {
		case err == nil:
			published++
		case !errors.Is(err, ErrNoFreeBuffer) && !t.Failed():
			t.Error(err)
		}
		runtime.Gosched()
	}
	changes, last := 0, ""
	var lines [nRanks][][]byte
	for i := range lines {
		if lines[i] = bytes.Fields(logs[i].Bytes()); len(lines[i]) != epochs {
			t.Fatalf("rank %d entered %d of %d epochs", i, len(lines[i]), epochs)
		}
	}
	for e := range epochs {
		version := string(lines[0][e])
		for i := range lines {
			if string(lines[i][e]) != version {
				t.Fatalf("epoch %d: rank 0 runs version %s, rank %d %s", e+1, version, i, lines[i][e])
			}
		}
		if version != last {
			changes++
		}
		last = version
	}
	t.Logf("%d epochs, %d publications, %d changes of the plan in force", epochs, published, changes)
	if changes < 100 {
		t.Errorf("%d changes are too few to show anything", changes)
	}
}
