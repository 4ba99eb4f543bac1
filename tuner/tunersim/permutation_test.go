package tunersim

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// What cannot be avoided even by who knows what every algorithm and protocol costs with one channel and with more, but not
// which channel count has which of these costs: the regret after so many calls, without noise, NCCL's default called once.
const permutationCalls = 64

// permutationActions bounds the search; classes are taken from the most promising on.
const permutationActions = 21

// permutationRegret is exact over all orders of trying, by dynamic programming over what has been tried: stopping keeps
// the best so far for all other calls, going on tries an action of a class at random.
func permutationRegret(t *Table, b state.Bucket) float64 {
	_, best, _ := t.Best(b)
	ns, _ := t.Default(b)
	standard := ns/best - 1
	classes := map[actions.Action][]float64{}
	for _, a := range t.Actions(b) {
		if a.Path == actions.PathDefault {
			continue
		}
		ns, _ := t.Cost(b, a)
		a.Channels = min(a.Channels, 2)
		classes[a] = append(classes[a], ns/best-1)
	}
	var ordered [][]float64
	for _, c := range classes {
		ordered = append(ordered, c)
	}
	slices.SortFunc(ordered, func(a, b []float64) int {
		slices.Sort(a)
		slices.Sort(b)
		return slices.Compare(a, b)
	})
	var costs []float64
	var ends []int // of the classes in costs
	for _, c := range ordered {
		if len(costs)+len(c) > permutationActions {
			break
		}
		costs = append(costs, c...)
		ends = append(ends, len(costs))
	}
	value := make([]float64, 1<<len(costs)) // [tried]: lost from here on
	for tried := len(value) - 1; tried >= 0; tried-- {
		left := permutationCalls - 1 - bits.OnesCount(uint(tried))
		least := standard
		for i, c := range costs {
			if tried>>i&1 == 1 {
				least = min(least, c)
			}
		}
		lost := float64(left) * least
		for k, begin := 0, 0; k < len(ends) && left > 0; k++ {
			sum, n := 0.0, 0.0
			for i := begin; i < ends[k]; i++ {
				if tried>>i&1 == 0 {
					sum += costs[i] + value[tried|1<<i]
					n++
				}
			}
			begin = ends[k]
			if n > 0 {
				lost = min(lost, sum/n)
			}
		}
		value[tried] = lost
	}
	return standard + value[0]
}

func TestPermutationRegret(t *testing.T) {
	small, err := ReadTable(strings.NewReader("machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us\n" +
		"m,2.28.9,4,2,socket,quiet,AllReduce,1024,default,-,-,-,20\n" +
		"m,2.28.9,4,2,socket,quiet,AllReduce,1024,collective,Ring,LL,2,10\n" +
		"m,2.28.9,4,2,socket,quiet,AllReduce,1024,collective,Ring,LL,4,30\n"))
	if err != nil {
		t.Fatal(err)
	}
	// The default loses one call of the best, and half of the time the worse of the two comes first, which loses two.
	if r := permutationRegret(small, small.Buckets()[0]); math.Abs(r-2) > 1e-9 {
		t.Errorf("lost %.3f, want 2", r)
	}
	table := load(t, "h200x4-socket-2nodes-cpu-load.csv")
	for _, b := range table.Buckets() {
		_, best, _ := table.Best(b)
		ns, _ := table.Default(b)
		once := ns/best - 1
		// At least the default's call; at most what staying with the default costs.
		if r := permutationRegret(table, b); r < once || r > permutationCalls*once+1e-9 {
			t.Errorf("%s: %.3f, one call of the default loses %.3f", b, r, once)
		}
	}
}

func BenchmarkPermutation(b *testing.B) {
	for b.Loop() {
		for _, trace := range traces(b, "h200x4-socket-2nodes-quiet.csv", "h200x4-socket-2nodes-network-load.csv",
			"h200x4-socket-2nodes-cpu-load.csv", "h200x8-nvlink.csv") {
			sum, n := 0.0, 0.0
			for _, bucket := range trace.Table.Buckets() {
				sum += permutationRegret(trace.Table, bucket)
				n++
			}
			fmt.Printf("{\"figure\":\"regret of knowing all but the channel count\",\"table\":%q,\"calls\":%d,\"regret\":%.4f}\n", trace.Name,
				permutationCalls, math.Round(1e4*sum/n)/1e4)
		}
	}
}
