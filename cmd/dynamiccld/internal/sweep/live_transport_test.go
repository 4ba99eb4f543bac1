package sweep

import (
	"os"
	"strings"
	"testing"

	"dynamiccl/state"
)

// A table has the transport that its ranks say, or the one that is named.
func TestLiveTransport(t *testing.T) {
	for _, c := range []struct {
		name, want string
		args       []string
		environ    []string
	}{
		{"NVLink", "nvlink", nil, nil},
		{"PCIe", "pcie", nil, []string{"FAKEGPU_LINKS=pcie"}},
		{"bridges", state.UnknownTransport, nil, []string{"FAKEGPU_LINKS=bridges"}},
		{"two of a bridge, which no rank can know", state.UnknownTransport, []string{"--ranks", "2"}, []string{"FAKEGPU_LINKS=bridges"}},
		{"NVLink that NCCL may not use", state.UnknownTransport, nil, []string{"NCCL_P2P_DISABLE=1"}},
		{"named", "pcie", []string{"--transport", "pcie"}, nil},
		{"nodes", "socket", []string{"--nodes", "2"}, nil},
		{"nodes, told", "rdma", []string{"--nodes", "2"}, []string{"NCCL_NET=IB"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t, "h200x4-nvlink-quiet", append(c.environ, "FAKEGPU_OPTIONS=--nccl 2.28.9")...)
			args := append([]string{"--ranks", "4", "--sizes", "1K", "--collectives", "AllReduce", "--choices", "default", "--budget", "1ms"}, c.args...)
			said := m.must(append(args, "--out", "t.csv")...)
			text, err := os.ReadFile(m.path("t.csv"))
			if err != nil || !strings.Contains(string(text), ","+c.want+",quiet,AllReduce,1024,") {
				t.Errorf("%v: %s", err, text)
			}
			if told := strings.Contains(said, "name it with --transport"); told != (c.want == state.UnknownTransport) {
				t.Errorf("it said\n%s", said)
			}
		})
	}
}
