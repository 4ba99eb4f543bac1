package daemon

import (
	"fmt"
	"slices"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/nccltuner"
	"dynamiccl/tuner"
)

// Communicators whose ranks are on several hosts. The daemon of the host that has rank 0 plans; rank 0's process has all hosts agree on
// what it publishes (nccltuner/hosts). The others' daemons serve the ranks' files, and show what was agreed.

// hosts is what was last seen of it.
type hosts struct {
	state   uint32
	agreed  uint64 // that the core knows of
	told    int    // looks at what the ranks on other hosts say, from when they had begun to
	follows bool
}

var hostsNames = [...]string{nccltuner.HostsOne: "", nccltuner.HostsApart: "apart", nccltuner.HostsMet: "met", nccltuner.HostsParted: "parted"}

// readyAcross says whether this daemon plans for ranks that have met, or why not.
func (c *comm) readyAcross() (bool, string) {
	_, told := c.view.Heard()
	switch {
	case c.view.Hosts == nccltuner.HostsParted:
		return false, c.whyParted()
	case !told:
		return false, "ranks on several hosts do not say which of the communicator's they are: the profiler plugin tells"
	case c.hosts.told < 2 && c.view.Leads(): // ranks of this host have met them before rank 0 has heard what they say, and it writes word by word
		return false, "ranks on other hosts have not said yet what they allow"
	case c.follows():
		return false, "the daemon of rank 0's host tunes it: " + inForce(c.view.Agreed())
	}
	return true, ""
}

func inForce(version uint64) string {
	if version == 0 {
		return "no plan is in force yet"
	}
	return fmt.Sprintf("plan %d is in force", version)
}

func (c *comm) whyParted() string {
	return fmt.Sprintf("ranks of several hosts have lost each other: %s for good, and nothing more is tried", inForce(c.view.Agreed()))
}

// whyAcross is what there is to say of a communicator that is tuned; "": nothing. That hosts part where all ranks leave is no trouble.
func (c *comm) whyAcross() string {
	if c.view.Hosts == nccltuner.HostsParted {
		if !slices.ContainsFunc(c.view.Ranks, func(r nccltuner.RankView) bool { return !r.Left }) {
			return ""
		}
		return c.whyParted()
	}
	return c.view.Refused()
}

// follows says that another host's daemon tunes it.
func (c *comm) follows() bool {
	_, told := c.view.Heard()
	return c.view.Several() && told && !c.view.Veto && !c.view.Leads()
}

// across takes in what became of a communicator's hosts, and which plan is in force there.
func (d *Daemon) across(c *comm) {
	if c.view.OthersTold {
		c.hosts.told++
	}
	if c.hosts.follows = c.follows(); c.hosts.follows {
		d.following = true
	}
	if now := c.view.Hosts; now != c.hosts.state {
		c.hosts.state = now
		d.log.Info("ranks of several hosts", "comm", control.CommID(c.id()), "state", hostsNames[now], "here", c.view.Joined, "ranks", c.nRanks, "leads", c.view.Leads())
		if now == nccltuner.HostsParted && c.active {
			c.pending, c.exploring = nil, false
			d.step(tuner.Parted{Comm: c.id()})
		}
	}
	if now := c.view.Agreed(); c.active && now != c.hosts.agreed {
		c.hosts.agreed = now
		d.step(tuner.Agreed{Comm: c.id(), Version: now})
	}
}

// tunedElsewhere says that another host's daemon hears of a communicator's calls.
func (d *Daemon) tunedElsewhere(id tuner.CommID) bool {
	if !d.following {
		return false
	}
	c := d.comms[id]
	return c != nil && c.hosts.follows
}

// acrossStatus adds what people see of it. Ranks that came late to this host have looked for others before.
func (c *comm) acrossStatus(s *control.CommStatus) {
	if c.view.Several() || !c.record.Complete(&c.view) {
		s.Hosts = hostsNames[c.view.Hosts]
	}
	if !c.view.Several() {
		return
	}
	s.PlanAgreed, s.Follows = c.view.Agreed(), c.follows()
	if s.Follows {
		s.PlanVersion = s.PlanAgreed
	}
}
