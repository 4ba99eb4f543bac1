package tunersim

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// coverage gives, for each statistic of a table, its place among machines drawn at random: the part of them below it.
func coverage(t testing.TB, table *Table, machines int, rng *rand.Rand) map[string]float64 {
	t.Helper()
	drawn := map[string][]float64{}
	for range machines {
		m := RandomMachineOf(table.Shape.Transport, rng)
		for _, p := range table.points {
			m.SetActions(p.collective, p.order)
		}
		for _, s := range Summary(m.Table(m.RandomCondition(table.Condition, rng), table.Buckets(), rng)) {
			drawn[s.Name] = append(drawn[s.Name], s.Value)
		}
	}
	at := map[string]float64{}
	for _, s := range Summary(table) {
		values := drawn[s.Name]
		slices.Sort(values)
		i, _ := slices.BinarySearch(values, s.Value)
		at[s.Name] = float64(i) / float64(len(values))
		t.Logf("%s %s, %s: %.3f; machines 2%% %.3f, 50%% %.3f, 98%% %.3f: at %.1f%%", table.Machine, table.Condition, s.Name, s.Value,
			values[len(values)/50], values[len(values)/2], values[len(values)*98/100], 100*at[s.Name])
	}
	return at
}

// uncovered are the statistics that lie beyond what is drawn, by table, and why that is right.
var uncovered = map[string]string{
	// With NCCL_MIN_NCHANNELS=16 the channels that are forced really run over sockets, where NCCL has 2 otherwise: at 1 MiB
	// 16 of them cost 2.6 times what one does. A machine is drawn with such sockets less than once in a hundred times.
	"h200x4-socket-4nodes-stream-calls-16channels.csv: 32 channels over 1, Ring/Simple, 1 MiB": "above",
	// NCCL 2.32's own choice is within 1% of the best here in nine buckets of ten. Beliefs that are drawn always err a
	// little more: where the default is the best there is nothing to learn.
	"h200x4-nvlink-quiet-nccl2.32.3.csv: default over best, 90%": "below",
	// LL is NCCL's device kernel here, which needs no ring: machines are drawn with NCCL's rings and trees alone.
	"h200x4-nvlink-quiet-nccl2.32.3-device-ll.csv: Tree over Ring, 1 KiB":        "above",
	"h200x4-nvlink-quiet-nccl2.32.3-device-ll.csv: default over best, 90%":       "above",
	"h200x4-nvlink-quiet-nccl2.32.3-device-ll.csv: least AllReduce of 1 KiB, us": "below",
}

// TestMachinesCoverMeasurements: what was measured is nothing rare among the machines that are drawn, but for what is
// named above. A part of 2% is known to 0.8% after 300 draws, so what seems rare then is asked again of five times as many.
func TestMachinesCoverMeasurements(t *testing.T) {
	seed := fabricSeed(t)
	names, tables := recorded(t)
	found := 0
	for _, name := range names {
		rare := []string{}
		for statistic, at := range coverage(t, tables[name], 300, rand.New(rand.NewPCG(seed, 3))) {
			side, known := uncovered[name+": "+statistic]
			switch {
			case known && (side == "below" && at < 0.02 || side == "above" && at > 0.98):
				found++
			case known:
				t.Errorf("%s: %s is at %.1f%% of the machines drawn, no longer %s them: it needs no exception", name, statistic, 100*at, side)
			case at < 0.02 || at > 0.98:
				rare = append(rare, statistic)
			}
		}
		if len(rare) == 0 {
			continue
		}
		again := coverage(t, tables[name], 1500, rand.New(rand.NewPCG(seed, 5)))
		for _, statistic := range rare {
			if at := again[statistic]; at < 0.01 || at > 0.99 {
				t.Errorf("%s: %s is at %.1f%% of the machines drawn", name, statistic, 100*at)
			}
		}
	}
	if found != len(uncovered) {
		t.Errorf("%d of %d exceptions were looked at", found, len(uncovered))
	}
}
