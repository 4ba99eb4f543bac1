package workertest

import (
	"fmt"
	"testing"
	"time"

	"dynamiccl/actions"
)

// The root of a broadcast is done before others have come, and so are the leaves of a reduction: before a replay of their calls is timed all
// ranks meet in an AllReduce of four bytes, or their time holds what the others' calls are kept back for. Other collectives meet by themselves.
func TestRanksMeetBeforeOneWayCalls(t *testing.T) {
	const ranks, replays = 2, 40
	env, dir := pluginEnv(t)
	g := startGroup(t, ranks, sameEnv(append(env, "FAKEGPU_TABLE="+writeTable(t, ranks, 1), "NCCL_ALLGATHERV_ENABLE=0")...)) // as sweep has it, so that broadcasts are told
	g.init()
	f := newForcer(t, dir, ranks)
	for collective, meets := range map[actions.Collective]bool{actions.Broadcast: true, actions.Reduce: true, actions.AllGather: false} {
		for _, mode := range []string{"stream", "free", "graph"} {
			what := fmt.Sprintf("%v as %s", collective, mode)
			f.force(g, collective, 65536, actions.Default)
			f.drain()
			allRight(t, what, g.ask(measureLine(collective.String(), 65536, mode, 5, replays, replays, 0, 0)))
			met, others := 0, 0
			for quiet := 0; quiet < 50; quiet++ {
				for _, s := range f.drain() {
					quiet = 0
					if s.Bucket.Collective == actions.AllReduce && s.Bytes == 4 {
						met++
					} else {
						others++
					}
				}
				time.Sleep(time.Millisecond)
			}
			if want := ranks * replays / 2; (met >= want) != (meets && mode != "graph") || others == 0 {
				t.Errorf("%s: ranks met in %d calls, and %d others were seen", what, met, others)
			}
		}
	}
	g.bye()
}
