// Package carriertest builds and runs the tests of the carrier (kernels/carrier): rank processes that call it as NCCL's GIN proxy
// does, over the stand-in for CUDA's driver. It is a folder of its own because the go tool refuses Go files beside C files.
package carriertest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

var build string // where everything is built, so that no test runs a file that somebody else is building

func TestMain(m *testing.M) {
	testbuild.Main(m, &build, "../../nccltuner/fakegpu cuda", "../carrier tests")
}

const shipped = "libnccl-net-dynamiccl-carrier.so"

func tests() string { return filepath.Join(testbuild.Objects(build, "../carrier"), "test") }

func seed() string { return cmp.Or(os.Getenv("TEST_SEED"), fmt.Sprint(time.Now().UnixNano()%1e9)) }

// tables are the versions of NCCL's interface that the tests play: of 2.28.9 to 2.30.4, and of later ones.
var tables = []string{"11", "14"}

// program runs the C test with a library; nothing else of the environment chooses what it does.
func program(t *testing.T, name, table, library string, args ...string) (string, error) {
	t.Helper()
	return programWith(t, "", name, table, library, args...)
}

// raceOptions are the race detector's. A write whose stack is forgotten by the time that it is read is not known for one of the GPU's copies: the
// longest history there is.
const raceOptions = "TSAN_OPTIONS=die_after_fork=0:atexit_sleep_ms=0:history_size=7:suppressions=../carrier/test/threads.suppressions"

// programWith also sets a variable.
func programWith(t *testing.T, variable, name, table, library string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	cmd := testbuild.Command(ctx, filepath.Join(tests(), name), args...)
	cmd.Env = append([]string{"TABLE=" + table, "LD_LIBRARY_PATH=" + build, "CARRIER=" + filepath.Join(build, library), "DYNAMICCL_CARRIER=1", "CUDA_DEVICE_MAX_CONNECTIONS=32", "TEST_SEED=" + seed(),
		raceOptions}, strings.Fields(variable)...)
	said, err := cmd.CombinedOutput()
	t.Logf("%s %s, table %s\n%s", name, strings.Join(args, " "), table, said)
	return string(said), err
}

// nic runs the test of the network card's kernel.
func nic(t *testing.T, name, operations string, args ...string) (string, error) {
	t.Helper()
	if os.Getenv("DYN_LONG") != "" && len(args) == 0 {
		operations += "0"
	}
	return program(t, name, "none", shipped, append([]string{operations}, args...)...)
}

func puts(short string) string {
	if os.Getenv("DYN_LONG") != "" {
		return "2000000"
	}
	return short
}

// The kernel that plays the network card, on threads of this CPU.
func TestNic(t *testing.T) {
	if _, err := nic(t, "nic_test", "15000"); err != nil {
		t.Error(err)
	}
}

func TestNicThreads(t *testing.T) {
	if said, err := nic(t, "threads/nic_test", "700"); err != nil || strings.Contains(said, "WARNING: ThreadSanitizer") {
		t.Error(err)
	}
}

// What is planted in it is found, and by what should find it; those without a sign may also hang it.
func TestNicPlantedMistakes(t *testing.T) {
	const early = "a signal behind it is here and its data is not"
	for mistake, sign := range map[int]string{1: early, 2: early, 3: early, 4: "a byte behind the target was done", 5: "", 6: early, 8: "", 10: "", 11: early, 12: early, 13: "", 14: "and behind the others was done", 15: "",
		17: "none stands behind it", 18: "it stays though it found nothing", 19: "a watch does not see what may be taken",
		20: "is done and they are not here", 21: "is done and they are not here", 22: "is done and they are not here", 23: "", 24: "though a kernel is to come"} {
		testbuild.Found(t, fmt.Sprint(mistake), 4, func() bool {
			said, err := nic(t, "nic_test", "20000", fmt.Sprint(mistake))
			return err == nil && strings.Contains(said, sign)
		})
	}
	for _, mistake := range []string{"7", "9", "16"} { // what orders nothing that has to; a race is seen or not
		testbuild.Found(t, mistake, 4, func() bool {
			said, err := programWith(t, raceOptions+":halt_on_error=1", "threads/nic_test", "none", shipped, "3000", mistake)
			if err != nil {
				t.Fatalf("mistake %s: %v", mistake, err)
			}
			return strings.Contains(said, "WARNING: ThreadSanitizer")
		})
	}
}

// card runs a test of GIN of type GDAKI: the library lies beside a file that stands for the network card's kernel, which the
// stand-in for CUDA's driver has.
func card(t *testing.T, name, table, library string, args ...string) string {
	t.Helper()
	said, err := runCard(t, "", name, table, library, args...)
	if err != nil {
		t.Errorf("table %s, %s: %v", table, strings.Join(args, " "), err)
	}
	return said
}

func runCard(t *testing.T, variable, name, table, library string, args ...string) (string, error) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "dynamiccl-carrier.fatbin"), []byte("\x50\xed\x55\xba"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(build, library), filepath.Join(folder, "carrier.so")); err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(build, filepath.Join(folder, "carrier.so"))
	if err != nil {
		t.Fatal(err)
	}
	return programWith(t, variable, name, table, relative, args...)
}

// Ranks put through network cards in software, with memory that comes and goes.
func TestCardTraffic(t *testing.T) {
	for _, table := range tables {
		for ranks, number := range []string{1: "3000", 2: "9000", 3: "3000", 4: "6000"} {
			if number != "" {
				card(t, "card_test", table, shipped, "traffic", fmt.Sprint(ranks), puts(number), seed())
			}
		}
	}
}

func TestCardThreads(t *testing.T) {
	for _, run := range [][]string{{"11", "traffic", "2", puts("1500"), seed()}, {"14", "traffic", "2", puts("1500"), seed()}, {"11", "killed", seed()}, {"14", "killed", seed()}, {"11", "refused"}, {"14", "shared"}, {"11", "locked"}, {"14", "locked"}, {"14", "leaves"}, {"11", "expected"}, {"14", "several", filepath.Join(t.TempDir(), "faults")}} {
		// What the sanitizer slows down beside other tests may lie still for the second that a card stays: who has CUDA's lock then hangs.
		var said string
		var err error
		for range 2 {
			said, err = runCard(t, "", "threads/card_test", run[0], "obj/carrier/test/threads/carrier.so", run[1:]...)
			if err == nil || strings.Contains(said, "WARNING: ThreadSanitizer") {
				break
			}
		}
		if err != nil || strings.Contains(said, "WARNING: ThreadSanitizer") {
			t.Errorf("table %v: %v", run, err)
		}
	}
}

func cards(t *testing.T, args ...string) {
	t.Helper()
	for _, table := range tables {
		card(t, "card_test", table, shipped, args...)
	}
}

func TestCardKilledRank(t *testing.T) {
	for range 3 {
		cards(t, "killed", seed())
	}
	cards(t, "killed", seed(), "20000")
}

// Its kernel ends and comes again; what it refuses; faults on purpose.
func TestCardLives(t *testing.T) { cards(t, "lives") }

// The program frees memory and keeps CUDA's lock, while its GPU waits for the card; and it waits for all kernels while cards come and go.
// With version 14 a device communicator that goes frees memory, too.
func TestCardBehindLock(t *testing.T) {
	cards(t, "locked")
	card(t, "card_test", "14", shipped, "leaves")
}

// A kernel of the program's is announced when no card is there any more, and gets to putting when nobody can launch one.
func TestCardExpected(t *testing.T) {
	for _, table := range tables {
		t.Run(table, func(t *testing.T) {
			t.Parallel() // they wait
			card(t, "card_test", table, shipped, "expected")
		})
	}
}

// A graph's kernel, which nobody announces, puts when nobody can launch a card, long after the last put.
func TestCardReplayed(t *testing.T) {
	for _, table := range tables {
		t.Run(table, func(t *testing.T) {
			t.Parallel() // they wait
			card(t, "card_test", table, shipped, "replayed")
		})
	}
}

func TestCardLetsWait(t *testing.T) { cards(t, "waits") }

// The program destroys its CUDA context before NCCL has done with the cards.
func TestCardReset(t *testing.T) { cards(t, "reset") }

// A card that goes though none stands behind it, one that stays though one does, and one that goes with another device communicator's,
// are found. On a machine that is busy with other things kernels of threads may go too late for it, several times in a row.
func TestCardPlantedMistakes(t *testing.T) {
	const hangs, stays = "ms_now() - from < 20000", "cudaDeviceSynchronize took"
	for _, run := range [][]string{{"mistake4.so", "11", "locked", hangs}, {"mistake5.so", "11", "waits", stays}, {"mistake6.so", "14", "leaves", hangs}, {"mistake10.so", "11", "expected", "no card comes"}, {"mistake11.so", "11", "replayed", "no card is there"},
		{"mistake12.so", "11", "crowd", "a communicator without GIN has places"}, {"mistake13.so", "11", "crowd", "what was left has a place"}} {
		t.Run(run[0], func(t *testing.T) {
			t.Parallel() // they wait
			testbuild.Found(t, run[0], 8, func() bool {
				// On a busy machine the kernel is to go within a round, too.
				said, err := runCard(t, "DYNAMICCL_CARRIER_IDLE_US=10", "card_test", run[1], "obj/carrier/test/"+run[0], run[2])
				return err != nil && strings.Contains(said, run[3])
			})
		})
	}
}

func TestCardCannotStart(t *testing.T) {
	for range 3 {
		cards(t, "start")
	}
}
func TestCardCrowd(t *testing.T) {
	t.Parallel() // it waits
	card(t, "card_test", "11", shipped, "crowd")
}
func TestCardSharing(t *testing.T)   { card(t, "card_test", "11", shipped, "sharing") }
func TestCardRefuses(t *testing.T)   { cards(t, "refused") }
func TestCardLatency(t *testing.T)   { cards(t, "latency") }
func TestCardBandwidth(t *testing.T) { cards(t, "bandwidth") }
func TestCardDeadRank(t *testing.T)  { cards(t, "dead") }
func TestCardFaultFile(t *testing.T) { cards(t, "file", filepath.Join(t.TempDir(), "faults")) }

// What is another way with version 14: device communicators that share a connection, gets, signals in memory; what NCCL
// leaves behind; and what it refuses.
func TestCardShared(t *testing.T) { card(t, "card_test", "14", shipped, "shared") }
func TestCardLeft(t *testing.T)   { card(t, "card_test", "14", shipped, "left") }
func TestCardUnfit(t *testing.T)  { card(t, "card_test", "14", shipped, "unfit") }

// Which type of GIN NCCL is told of: with the kernel, without it, and as asked for.
func TestTypes(t *testing.T) {
	card(t, "card_test", "11", shipped, "types", "1")
	if _, err := program(t, "card_test", "11", shipped, "types", "0"); err != nil {
		t.Error(err)
	}
}

// Signals that do not wait for their copies or overtake earlier puts, and gets that are done before their copies, are found.
func TestPlantedMistakes(t *testing.T) {
	const early, empty = "its signal is here and its data is not", "is done and its data is not here"
	for _, run := range [][]string{
		{"11", "mistake1.so", "traffic", "20000", early}, {"11", "mistake2.so", "traffic", "20000", early},
		{"14", "mistake1.so", "traffic", "20000", early}, {"14", "mistake2.so", "traffic", "20000", early}, {"14", "mistake3.so", "gets", "10000", empty},
	} {
		testbuild.Found(t, run[1], 4, func() bool {
			said, err := program(t, "carrier_test", run[0], "obj/carrier/test/"+run[1], run[2], "2", run[3], seed())
			return err != nil && strings.Contains(said, run[4])
		})
	}
}

func story(t *testing.T, args ...string) {
	t.Helper()
	for mover, run := range movers {
		for _, table := range tables {
			if _, err := run(t, "carrier_test", table, shipped, args...); err != nil {
				t.Errorf("%s, table %s: %v", mover, table, err)
			}
		}
	}
}

// A rank that dies while puts are on their way to it and from it, at another place each time; last one so slow that the others are
// done long before it has sent as much as it dies of.
func TestKilledRank(t *testing.T) {
	for range 3 {
		story(t, "killed", seed())
	}
	story(t, "killed", seed(), "10000")
}

func TestRankThatLeaves(t *testing.T) { story(t, "left") }
func TestRefusals(t *testing.T)       { story(t, "refusals") }
func TestUnwanted(t *testing.T)       { story(t, "unwanted") }

// The faults on purpose.
func TestLatency(t *testing.T)   { story(t, "latency") }
func TestBandwidth(t *testing.T) { story(t, "bandwidth") }
func TestDeadRank(t *testing.T)  { story(t, "dead") }
func TestFaultFile(t *testing.T) { story(t, "file", filepath.Join(t.TempDir(), "faults")) }

// Memory goes while puts into it, or out of it, are under way, wait, or come later, and signals for it come: NCCL's two threads at once.
func TestMemoryThatGoes(t *testing.T) {
	story(t, "going", filepath.Join(t.TempDir(), "faults"))
	for mover, run := range movers {
		for _, table := range tables {
			said, err := run(t, "threads/carrier_test", table, "obj/carrier/test/threads/carrier.so", "going", filepath.Join(t.TempDir(), "faults"))
			if err != nil || strings.Contains(said, "WARNING: ThreadSanitizer") {
				t.Errorf("%s, table %s: %v", mover, table, err)
			}
		}
	}
}

// Memory that goes under a copy, and a copy that begins when it has gone: who copies into it dies. An addition that does.
func TestMemoryThatGoesPlantedMistakes(t *testing.T) {
	for mistake, sign := range map[string]string{"mistake7.so": "status b", "mistake8.so": "status b", "mistake9.so": "it was added to when it had gone"} {
		testbuild.Found(t, mistake, 6, func() bool {
			said, err := program(t, "carrier_test", "11", "obj/carrier/test/"+mistake, "going", filepath.Join(t.TempDir(), "faults"))
			return err != nil && strings.Contains(said, sign)
		})
	}
}

// NCCL sees four tables, and who announces kernels a function, and the library brings nothing along.
func TestLibrary(t *testing.T) {
	shows, needs, _ := testbuild.Library(t, filepath.Join(build, shipped))
	for _, name := range needs {
		if !strings.HasPrefix(name, "libc.so") && !strings.HasPrefix(name, "ld-linux") {
			t.Errorf("it needs %s", name)
		}
	}
	if !slices.Equal(shows, []string{"dynamicclCarrierExpected", "ncclGinPlugin_v11", "ncclGinPlugin_v14", "ncclNetPlugin_v11", "ncclRmaPlugin_v14"}) {
		t.Errorf("it shows %v", shows)
	}
}

func TestSources(t *testing.T) {
	testbuild.Sources(t, "../carrier/*.[ch]", "../carrier/nic/*", "../carrier/Makefile", "../carrier/test/*.*", "../carrier/test/proxy/*", "../carrier/test/card/*", "../../nccltuner/fakegpu/*.*", "../../nccltuner/worker/*_api.h")
}
