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

// Programs that have ended are no reason to look for a plugin that is missing.
func TestStatusWithoutCommunicators(t *testing.T) {
	for want, st := range map[string]control.Status{
		"no rank with the plugin has started":                   {},
		"those that were here have left; `dynamiccld table --s": {Decisions: 3},
		"those that were here have left":                        {Samples: 1},
	} {
		var b strings.Builder
		if err := Status(&b, StatusReport{Status: st}, time.Now()); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "\nno communicators: "+want) {
			t.Errorf("%q is not in\n%s", want, b.String())
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
		if err := comms(&b, []control.CommStatus{c, {Nodes: 2, Transport: "rdma", NICs: 8}}, false); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Split(b.String(), "\n")[2], want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

func TestStatusOfSeveralHosts(t *testing.T) {
	for want, c := range map[string]control.CommStatus{
		"  follows: the daemon of rank 0's host tunes it: plan 7 is in force": {Follows: true, Hosts: "met", Why: "the daemon of rank 0's host tunes it: plan 7 is in force"},
		"  passes through: 2 of 6 ranks have joined on this host":             {Hosts: "apart", Why: "2 of 6 ranks have joined on this host"},
		"  tuned: plan 9 is not in force":                                     {Active: true, Hosts: "met", Why: "plan 9 is not in force"},
	} {
		var b strings.Builder
		if err := comms(&b, []control.CommStatus{c}, false); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want+"\n") {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}
