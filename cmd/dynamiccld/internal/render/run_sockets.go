package render

import (
	"fmt"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// Several sockets for a connection make large messages over TCP faster, each with a thread of its own, and small ones slower. NCCL makes
// them with the communicator, so no plan can choose them; the receiver says how many there are, so hosts need not agree (docs/results.md).
const (
	socketsFrom  = 4 << 20 // bytes of calls that gain: at 1 MiB two sockets were no faster, at 16 MiB 1.4 to 1.6 times
	socketsShare = 0.8     // of the measured time over sockets, from which on they are named
	socketsLeast = 1e9     // ns of that time; less says nothing of a program
)

// SocketVariables are NCCL's that say how many; who has set one needs no advice.
var SocketVariables = []string{"NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD"}

// Sockets is what a run might gain by several sockets for a connection, empty where that is not to be expected.
func Sockets(r control.RunReport) string {
	var all, large float64
	for _, c := range r.Comms {
		for _, b := range c.Buckets {
			if b.Ledger == nil || b.Transport != "socket" {
				continue
			}
			all += b.Ledger.DefaultNs
			if b.MinBytes >= socketsFrom {
				large += b.Ledger.DefaultNs
			}
		}
	}
	if all < socketsLeast || large < socketsShare*all {
		return ""
	}
	return fmt.Sprintf("%.0f%% of the measured time over TCP was in calls of 4 MiB and more, which several sockets for a connection make faster (over a loopback "+
		"1.4 to 1.6 times as fast at 16 MiB) and small calls slower (0.6 to 0.8 up to 16 KiB): try NCCL_SOCKET_NTHREADS=2 on all hosts; no plan can choose it", 100*large/all)
}
