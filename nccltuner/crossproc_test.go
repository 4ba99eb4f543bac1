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
	"time"
)

// Ranks in C, as shipped, in processes of their own, against this publisher through a real file: every epoch runs the
// same version everywhere and no plan in force is overwritten.
func TestAgreementWithRankProcesses(t *testing.T) {
	seed := testSeed(t)
	const nRanks = 3
	target := 2000
	if os.Getenv("DYN_LONG") != "" {
		target = 100000
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
		rank := exec.Command(program, path, strconv.Itoa(i), strconv.FormatUint(seed*nRanks+uint64(i), 10))
		rank.Stdout = &logs[i]
		if err := rank.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rank.Process.Kill() }) // normally it has ended; after a failure it must not run on
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
	deadline := time.Now().Add(time.Minute)
	for published < target && len(done) == 0 {
		switch _, err := p.Publish(numberedSpec(published + 1)); {
		case err == nil:
			if published++; published%100 == 0 {
				p = newPublisher(t, r) // the daemon restarts
			}
		case !errors.Is(err, ErrNoFreeBuffer):
			t.Fatal(err)
		case time.Now().After(deadline):
			t.Fatalf("%d publications in a minute", published)
		}
		runtime.Gosched()
	}
	if err := r.Beat(); err != nil { // the sign for the ranks to end
		t.Fatal(err)
	}
	for range nRanks {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	changes, last := 0, ""
	var lines [nRanks][][]byte
	epochs := 0
	for i := range lines {
		lines[i] = bytes.Fields(logs[i].Bytes())
		epochs = max(epochs, len(lines[i]))
	}
	for e := range epochs {
		version := ""
		for i := range lines {
			if e >= len(lines[i]) {
				continue // it saw the sign earlier
			}
			if got := string(lines[i][e]); version == "" {
				version = got
			} else if got != version {
				t.Fatalf("epoch %d: one rank runs version %s, rank %d %s", e+1, version, i, got)
			}
		}
		if version != last {
			changes++
		}
		last = version
	}
	t.Logf("%d epochs, %d publications, %d changes of the plan in force", epochs, published, changes)
	if changes < target/20 {
		t.Errorf("%d changes are too few to show anything", changes)
	}
}
