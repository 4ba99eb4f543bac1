package sweep

import (
	"strings"
	"testing"
	"time"
)

// gin is the environment in which the stand-ins have NCCL 2.28.9's GIN, and run our kernels on it.
func gin(t *testing.T, environ ...string) []string {
	t.Helper()
	file := kernels(t)[1]
	return append(kernels(t, "DYNAMICCL_GIN_KERNELS="+strings.TrimPrefix(file, "DYNAMICCL_KERNELS="), "FAKEGPU_OPTIONS=--nccl 2.28.9", "FAKEGPU_KERNEL_US=3"), environ...)
}

// ginRows gives the rows of path gin: "AllReduce 1024 proxy 2".
func (m *machine) ginRows(table string) (rows []string) {
	for key := range m.medians(m.path(table)) {
		if strings.Contains(key, " gin ") {
			rows = append(rows, strings.NewReplacer(" gin ", " ", " - ", " ").Replace(key))
		}
	}
	return rows
}

// On pretended nodes GIN comes to a program that knows nothing of it, is measured beside NCCL's choices, in graphs and in
// streams, also where CTAs share a context, and every element of what it gives is compared.
func TestLiveGIN(t *testing.T) {
	for _, c := range []struct {
		calls, ranks, nodes, sizes, collectives string
		environ                                 []string
		rows                                    int
	}{
		{"graph", "4", "2", "1K,64K", "AllReduce,AllToAll", nil, 1 + 8 + 2 + (4 + 8)}, // of AllToAll hierarchical and flat ones,
		{"graph", "4", "2", "256K", "AllReduce", nil, 4 + 8},                          // and of large AllReduces
		{"graph", "4", "2", "64K", "AllGather,ReduceScatter", nil, (4 + 8) + (4 + 8)},
		{"stream", "2", "2", "4K", "AllReduce,AllToAll", nil, 4},
		{"graph", "2", "1", "4K", "AllReduce,AllToAll", []string{"DYNAMICCL_GIN=1"}, 4},
		{"graph", "2", "1", "4K", "AllReduce,AllToAll", nil, 0},
		{"graph", "2", "2", "4K", "AllReduce,AllToAll", []string{"DYNAMICCL_GIN=0"}, 0},
		{"graph", "4", "2", "1K", "AllReduce,AllToAll", []string{"FAKEGPU_OPTIONS=--nccl 2.32.3"}, 1 + 2},
		{"graph", "2", "2", "4K", "AllReduce,AllToAll", []string{"FAKEGPU_OPTIONS=--nccl 2.30.7"}, 0},
		{"graph", "2", "2", "4K", "AllReduce,AllToAll", []string{"DYNAMICCL_GIN_KERNELS=/nowhere"}, 0},
	} {
		table := map[string]string{"4": "h200x4-socket-2nodes-quiet", "2": "h200x2-socket-2nodes-quiet"}[c.ranks]
		m := newMachine(t, table, gin(t, c.environ...)...)
		said := m.must("--ranks", c.ranks, "--nodes", c.nodes, "--calls", c.calls, "--sizes", c.sizes, "--collectives", c.collectives,
			"--choices", "gin,ring/ll/4", "--budget", "1ms", "--out", "t.csv")
		if rows := m.ginRows("t.csv"); len(rows) != c.rows {
			t.Errorf("%+v: %d rows, want %d: %v\n%s", c, len(rows), c.rows, rows, said)
		}
		if is := strings.Contains(said, "GIN: active, proxy, 2 contexts"); is != (c.rows > 0) {
			t.Errorf("%+v: what was granted is said: %v\n%s", c, is, said)
		}
		m.alone()
	}
}

// Where NCCL has two backends on a communicator both are measured, and where one of them does not work the other one is.
func TestLiveGINBackends(t *testing.T) {
	for _, c := range []struct {
		environ      []string
		gdaki, proxy int
		said         []string
	}{
		{nil, 4, 4, []string{"GIN: active, gdaki, 2 contexts", "; active, proxy, 2 contexts"}},
		{[]string{"FAKEGPU_GIN=silent", "FAKEGPU_GIN_TYPE=3", "DYNAMICCL_GIN_WAIT_S=2"}, 0, 4, []string{"GIN: failed on rank ", "; active, proxy, 2 contexts", "no GIN by GDAKI"}},
		{[]string{"FAKEGPU_GIN=none", "FAKEGPU_GIN_TYPE=2", "DYNAMICCL_GIN_WAIT_S=2"}, 4, 0, []string{"GIN: active, gdaki, 2 contexts", "; failed on rank ", "no GIN by Proxy"}},
	} {
		m := newMachine(t, "h200x2-socket-2nodes-quiet", gin(t, append(c.environ, "FAKEGPU_OPTIONS=--nccl 2.32.3", "FAKEGPU_GIN_TYPES=23")...)...)
		said := m.must("--ranks", "2", "--nodes", "2", "--sizes", "4K", "--collectives", "AllReduce,AllToAll", "--choices", "gin,ring/ll/4", "--budget", "1ms", "--out", "t.csv")
		rows := map[string]int{}
		for _, row := range m.ginRows("t.csv") {
			rows[strings.Fields(row)[2]]++
		}
		if rows["gdaki"] != c.gdaki || rows["proxy"] != c.proxy {
			t.Errorf("%v: %v, want %d and %d\n%s", c.environ, rows, c.gdaki, c.proxy, said)
		}
		for _, want := range c.said {
			if !strings.Contains(said, want) {
				t.Errorf("%v: it does not say %q:\n%s", c.environ, want, said)
			}
		}
		m.alone()
	}
}

// Where anything goes wrong on a rank, NCCL runs all calls, on all ranks, and soon.
func TestLiveGINFails(t *testing.T) {
	for _, fault := range []string{"none", "silent"} {
		for _, c := range []struct{ name, only string }{{"all ranks", ""}, {"one rank", "1"}} {
			environ := gin(t, "DYNAMICCL_GIN_WAIT_S=2", "FAKEGPU_GIN="+fault, "FAKEGPU_GIN_RANK="+c.only)
			m := newMachine(t, "h200x2-socket-2nodes-quiet", environ...)
			began := time.Now()
			said := m.must("--ranks", "2", "--nodes", "2", "--sizes", "4K", "--collectives", "AllReduce", "--choices", "gin,ring/ll/4", "--budget", "1ms", "--out", "t.csv")
			if rows := m.ginRows("t.csv"); len(rows) != 0 || len(m.medians(m.path("t.csv"))) < 2 {
				t.Errorf("%s, %s: rows %v of %v\n%s", fault, c.name, rows, m.medians(m.path("t.csv")), said)
			}
			if why := map[string]string{"none": "no GIN for this communicator: ncclDevCommCreate", "silent": "was waited for in vain"}[fault]; !strings.Contains(said, why) {
				t.Errorf("%s, %s: it does not say why:\n%s", fault, c.name, said)
			}
			if took := time.Since(began); took > 100*time.Second {
				t.Errorf("%s, %s: took %v", fault, c.name, took)
			}
			m.alone()
		}
	}
}
