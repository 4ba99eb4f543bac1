package sweep

import (
	"os"
	"path/filepath"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner/tunersim"
)

// A device kernel has no number of channels; its row is read back as the choice that learners have. Of other kernels a
// table wants the number.
func TestRowOfTheDeviceKernel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "table.csv")
	all := []Point{
		{Collective: "AllReduce", Bytes: 1024, Action: "default", Ran: "Ring/LL/4", MedianUs: 9, Outcome: OutcomeOK},
		{Collective: "AllReduce", Bytes: 1024, Action: "Ring/LL", Ran: deviceKernel, MedianUs: 4.5, Outcome: OutcomeOK},
		{Collective: "AllReduce", Bytes: 1024, Action: "NVLS/Simple", Ran: "NVLS/Simple/16", MedianUs: 7, Outcome: OutcomeOK},
	}
	w := newTable(path, &Description{Identity: Identity{Machine: "m", NCCL: "2.32.3", Ranks: 4, Nodes: 1, Transport: "nvlink", Condition: "quiet"}})
	if n, err := w.write(all); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	table, err := tunersim.ReadTable(f)
	if err != nil {
		t.Fatal(err)
	}
	a, err := actions.Parse("Ring/LL")
	if err != nil {
		t.Fatal(err)
	}
	if ns, ok := table.Cost(state.Bucket{Collective: actions.AllReduce, Log2Bytes: 10}, a); !ok || ns != 4500 {
		t.Errorf("%s is in the table: %v, %g ns", a, ok, ns)
	}
	all[1].Ran = ""
	if _, err := w.write(all); err == nil {
		t.Error("a row without channels was written")
	}
}
