package carriertest

import (
	"fmt"
	"strings"
	"testing"
)

// movers are who moves what GIN of type Proxy puts: CUDA's copies, and, where the carrier's kernel is there, that, fed by the host.
var movers = map[string]func(t *testing.T, name, table, library string, args ...string) (string, error){"copies": program, "fed": fed}

func fed(t *testing.T, name, table, library string, args ...string) (string, error) {
	t.Helper()
	said, err := runCard(t, "DYNAMICCL_CARRIER_TYPE=proxy", name, table, library, args...)
	if strings.Contains(said, "copies that the host drives") {
		t.Error("CUDA's copies moved")
	}
	return said, err
}

// Every put's data is there when its signal is seen, and so is that of all puts before; signals are counted exactly.
func TestTraffic(t *testing.T) {
	for mover, run := range movers {
		for _, table := range tables {
			for ranks, number := range []string{1: "1500", 2: "7500", 3: "2500", 4: "5000"} {
				if ranks == 0 {
					continue
				}
				if _, err := run(t, "carrier_test", table, shipped, "traffic", fmt.Sprint(ranks), puts(number), seed()); err != nil {
					t.Errorf("%s, table %s, %d ranks: %v", mover, table, ranks, err)
				}
			}
		}
	}
}

// What is got is there when the get is done, behind the put that it was asked for after; two threads of NCCL's at once.
func TestGets(t *testing.T) {
	for mover, run := range movers {
		for ranks, number := range []string{1: "1000", 2: "2500", 4: "2000"} {
			if number == "" {
				continue
			}
			if _, err := run(t, "carrier_test", "14", shipped, "gets", fmt.Sprint(ranks), puts(number), seed()); err != nil {
				t.Errorf("%s, %d ranks: %v", mover, ranks, err)
			}
		}
	}
}

// The same where memory and contexts come and go while the proxy runs, under the thread sanitizer.
func TestThreads(t *testing.T) {
	for mover, moves := range movers {
		for _, run := range [][]string{{"11", "traffic", "2", "2000"}, {"14", "traffic", "2", "2000"}, {"14", "gets", "2", "1000"}} {
			said, err := moves(t, "threads/carrier_test", run[0], "obj/carrier/test/threads/carrier.so", run[1], run[2], puts(run[3]), seed())
			if err != nil || strings.Contains(said, "WARNING: ThreadSanitizer") {
				t.Errorf("%s, table %s, %s: %v", mover, run[0], run[1], err)
			}
		}
	}
}

// A program keeps CUDA's lock while its GPU waits for what NCCL's thread puts; and does so when nobody had put for long, with a kernel that was
// announced. Who does not hear of it has no card there. More is put at once than a queue has places for.
func TestProxyBehindLock(t *testing.T) {
	for _, table := range tables {
		for _, story := range []string{"behind", "announced", "full"} {
			t.Run(story+table, func(t *testing.T) {
				t.Parallel() // they wait
				said, err := fed(t, "threads/carrier_test", table, "obj/carrier/test/threads/carrier.so", story)
				if err != nil || strings.Contains(said, "WARNING: ThreadSanitizer") {
					t.Error(err)
				}
			})
		}
	}
	for _, run := range [][]string{{"mistake10.so", "announced", "no card comes"}, {"mistake14.so", "full", "behind.c"}} {
		t.Run(run[0], func(t *testing.T) {
			t.Parallel()
			if said, err := fed(t, "carrier_test", "14", "obj/carrier/test/"+run[0], run[1]); err == nil || !strings.Contains(said, run[2]) {
				t.Errorf("it was not found: %v", err)
			}
		})
	}
}

// The program destroys its CUDA context before NCCL has done with what moves.
func TestProxyReset(t *testing.T) {
	for _, table := range tables {
		if _, err := fed(t, "carrier_test", table, shipped, "reset"); err != nil {
			t.Errorf("table %s: %v", table, err)
		}
	}
}
