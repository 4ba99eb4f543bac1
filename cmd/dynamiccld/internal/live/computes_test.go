package live

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// A program computes for 1 ms between calls of 4 MiB: our kernels take half as many multiprocessors of those as where the guard is off, and of
// calls that are small as many as there.
func TestComputeIsSpared(t *testing.T) {
	for _, c := range []struct {
		bytes    int
		guard    string
		computes bool
	}{{4 << 20, "true", true}, {4 << 20, "false", false}, {1 << 20, "true", false}} {
		t.Run(fmt.Sprintf("%d bytes, guard %s", c.bytes, c.guard), func(t *testing.T) {
			r := newRig(t, "--learner", "coordinate-descent", "--explore-budget", "50%", "--tick", "1ms", "--step-guard="+c.guard)
			r.start()
			p := startSteps(r, c.bytes, built(t).Tuner(), "0", "FAKEGPU_KERNEL_US=90")
			r.learns(func() { p.steps(64) }, uint8(bits.Len(uint(c.bytes))-1), func(b *control.Bucket) bool {
				spared := b.Computes && b.MostCTAs == 32
				wide := slices.ContainsFunc(b.Tried, func(t control.Tried) bool {
					return strings.HasPrefix(t.Action, "lsa/") && strings.HasSuffix(t.Action, "/64")
				})
				return strings.HasPrefix(b.Choice, "lsa/") && spared == c.computes && wide == !c.computes
			})
			p.end()
		})
	}
}
