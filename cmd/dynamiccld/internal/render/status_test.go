package render

import (
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

func TestStatusOfATraceThatEnded(t *testing.T) {
	for _, why := range []string{"", "no space left"} {
		var b strings.Builder
		if err := Status(&b, StatusReport{Status: control.Status{TraceError: why}}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if said := strings.Contains(b.String(), "ended early: no space left"); said != (why != "") {
			t.Errorf("%q:\n%s", why, b.String())
		}
	}
}

func TestStatusTransport(t *testing.T) {
	for want, c := range map[string]control.CommStatus{
		"  2      -             -  ": {Nodes: 2},
		"  2      socket        -  ": {Nodes: 2, Transport: "socket"},
		"  2      rdma, 1 NIC   -  ": {Nodes: 2, Transport: "rdma", NICs: 1},
		"  2      rdma, 8 NICs  -  ": {Nodes: 2, Transport: "rdma", NICs: 8},
	} {
		var b strings.Builder
		if err := comms(&b, []control.CommStatus{c, {Nodes: 2, Transport: "rdma", NICs: 8}}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Split(b.String(), "\n")[2], want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}
