package workertest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var (
	tableSizes       = []int{1024, 65536, 4 << 20}
	tableChannels    = []int{1, 2, 4, 8, 16, 32}
	tableAlgorithms  = []string{"Tree", "Ring"}
	tableProtocols   = []string{"LL", "LL128", "Simple"}
	tableCollectives = []string{"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce"}
)

// defaultUs is the made-up cost of NCCL's default; every collective and size has another.
func defaultUs(collective string, bytes int) float64 {
	for i, c := range tableCollectives {
		if c == collective {
			return 40 + float64(bytes)/2e4 + float64(i)
		}
	}
	return defaultUs("AllGather", bytes) // AllToAll, as the stand-in has it
}

// choiceUs is the made-up cost of a choice; each differs from all others of its size.
func choiceUs(bytes, algorithm, protocol, channels int) float64 {
	return 20 + float64(bytes)/1e4/float64(protocol+1) + 3*float64(algorithm) + 5*float64(protocol) + 8/float64(channels)
}

func writeTable(t *testing.T, ranks, nodes int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us\n")
	row := func(collective string, bytes int, choice string, us float64) {
		fmt.Fprintf(&b, "made-up,2.30.7,%d,%d,nvlink,quiet,%s,%d,%s,%.3f\n", ranks, nodes, collective, bytes, choice, us)
	}
	for _, collective := range tableCollectives {
		for _, bytes := range tableSizes {
			row(collective, bytes, "default,-,-,-", defaultUs(collective, bytes))
			for a, algorithm := range tableAlgorithms {
				if algorithm == "Tree" && collective != "AllReduce" {
					continue
				}
				for p, protocol := range tableProtocols {
					for _, channels := range tableChannels {
						row(collective, bytes, fmt.Sprintf("collective,%s,%s,%d", algorithm, protocol, channels), choiceUs(bytes, a, p, channels))
					}
				}
			}
		}
	}
	path := filepath.Join(t.TempDir(), "table.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// sameEnv is one environment for all ranks.
func sameEnv(env ...string) func(int) []string { return func(int) []string { return env } }

// pluginEnv is the real plugin with an empty directory of its own.
func pluginEnv(t *testing.T) (env []string, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return []string{"NCCL_TUNER_PLUGIN=dynamiccl", "NCCL_PROFILER_PLUGIN=dynamiccl", "DYNAMICCL_DIR=" + dir}, dir
}
