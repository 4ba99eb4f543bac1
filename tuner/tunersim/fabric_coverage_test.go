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

// TestMachinesCoverMeasurements: what was measured is nothing rare among the machines that are drawn.
func TestMachinesCoverMeasurements(t *testing.T) {
	seed := fabricSeed(t)
	names, tables := recorded(t)
	for _, name := range names {
		for statistic, at := range coverage(t, tables[name], 300, rand.New(rand.NewPCG(seed, 3))) {
			if at < 0.02 || at > 0.98 {
				t.Errorf("%s: %s is at %.1f%% of the machines drawn", name, statistic, 100*at)
			}
		}
	}
}
