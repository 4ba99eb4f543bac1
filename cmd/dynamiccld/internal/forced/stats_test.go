package forced

import (
	"slices"
	"testing"
)

func TestSlowest(t *testing.T) {
	us, iqr, medians := Slowest([][]float64{{1, 5, 3, 4}, {2, 2, 8, 2, 100}})
	// Medians 3.5 and 2; slowest of each replay 2, 5, 8, 4.
	if us != 3.5 || !slices.Equal(medians, []float64{3.5, 2}) || iqr <= 0 || iqr > 6 {
		t.Errorf("%v %v %v", us, iqr, medians)
	}
	if us, iqr, _ := Slowest([][]float64{{7}}); us != 7 || iqr != 0 {
		t.Errorf("one value: %v %v", us, iqr)
	}
}

func TestActualBytes(t *testing.T) {
	for _, c := range []struct {
		collective string
		bytes      uint64
		ranks      int
		want       uint64
	}{{"AllReduce", 1000, 3, 1000}, {"AllGather", 1024, 3, 1008}, {"ReduceScatter", 65536, 3, 65520}, {"AllGather", 4096, 4, 4096}} {
		if got := ActualBytes(c.collective, c.bytes, c.ranks); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
