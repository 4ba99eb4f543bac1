// Package kernelstest runs the kernels' tests that need no GPU.
package kernelstest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

var build string

func TestMain(m *testing.M) { testbuild.Main(m, &build, "../../kernels tests") }

// Every kernel on threads of a CPU, also under the thread sanitizer; then with planted mistakes, each of which must be found.
func TestCollectives(t *testing.T) {
	calls, threadCalls := "600", "150" // of another seed each time; under the sanitizer a call takes ten times as long
	seed := cmp.Or(os.Getenv("TEST_SEED"), fmt.Sprint(time.Now().UnixNano()%1e9))
	railsCalls, railsThreadCalls := "200", "60" // of several hosts of several ranks: a call takes four times as long
	if os.Getenv("DYN_LONG") != "" {
		calls, threadCalls = "400000", "400000"
		railsCalls, railsThreadCalls = calls, threadCalls
	}
	run := func(program string, arguments ...string) {
		t.Run(program+" "+strings.Join(arguments, " "), func(t *testing.T) {
			tries := 1
			if len(arguments) > 1 {
				tries = 3 // whether a planted mistake shows is also the scheduler's
			}
			for err := errors.New("not run"); err != nil && tries > 0; tries-- {
				cmd := exec.Command(filepath.Join(testbuild.Objects(build, "../../kernels"), program), arguments...)
				if len(arguments) == 1 { // a planted mistake is looked for in the calls that are known to show it
					cmd.Env = append(os.Environ(), "TEST_SEED="+seed)
				}
				var said []byte
				if said, err = cmd.CombinedOutput(); err != nil && tries == 1 {
					t.Errorf("%v\n%s", err, said)
				}
				t.Logf("%s", said)
			}
		})
	}
	for program, mistakes := range map[string][]int{"collectives_test": {1, 2, 3, 4, 5, 6, 7, 10, 22, 23, 24, 25, 26, 27, 28, 29, 36, 38, 44, 45, 46, 47}, "fused_test": {1, 2, 3, 4, 8, 9}, "gin_test": {1, 2, 3, 4, 11, 12, 21, 34, 35, 41, 43, 44, 47, 48}, "parts_test": {1, 2, 3, 6, 7, 10, 12, 18, 19, 20, 22, 23, 24, 25, 26, 27, 29, 30, 31, 32, 39, 40, 47}, "rails_test": {1, 2, 3, 4, 6, 13, 14, 15, 16, 17, 35, 42, 44, 47}} {
		own, ownThread := calls, threadCalls
		if program == "rails_test" {
			own, ownThread = railsCalls, railsThreadCalls
		}
		run(program, own)
		run(program+"-threads", ownThread)
		for _, mistake := range mistakes { // by their numbers in line.cuh
			run(program, "4000", fmt.Sprint(mistake))
		}
	}
	sumCalls := "2000" // all types with all operators, also of 8 ranks; races of these kernels are collectives_test's
	if os.Getenv("DYN_LONG") != "" {
		sumCalls = calls
	}
	run("sums_test", sumCalls)
	for _, mistake := range []int{4, 37} { // own part first, which the compare of ranks finds; rounded rank by rank, which the bound finds
		run("sums_test", "4000", fmt.Sprint(mistake))
	}
	for _, mistake := range []int{3, 6, 13, 14, 15, 17, 18, 33} { // with the other kinds these would be found there
		run("rails_test", "1000", fmt.Sprint(mistake), "AllToAllv")
	}
}
