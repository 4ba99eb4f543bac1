package daemon

import (
	"fmt"

	"dynamiccl/nccltuner"
)

// fates are what has become of rank processes, looked up once for each answer: the loop has no use for it. A collective ends on no
// rank before all have come, so where one stands still the communicator does, and only here does anybody see whose it is.
type fates map[nccltuner.Process]string

const died = "has died, and the others wait for it until the program ends"

// of says what is wrong with a process in words; "": it runs, or nobody knows.
func (f fates) of(p nccltuner.Process) string {
	text, known := f[p]
	if known {
		return text
	}
	if alive, err := p.Alive(); err == nil && !alive {
		text = died
	} else if nccltuner.Stopped(int(p.PID)) {
		text = fmt.Sprintf("is stopped, and the others wait for it: let it go on with `kill -CONT %d`", p.PID)
	}
	f[p] = text
	return text
}

// trouble names the ranks that keep a communicator from going on; "": none. Where all have died nobody waits: the program has ended, and
// the next sweep takes the communicator for gone.
func (c *comm) trouble(f fates) string {
	text, more, gone := "", 0, true
	for _, r := range c.view.Ranks {
		fate := ""
		if !r.Left {
			fate = f.of(r.Process)
			gone = gone && fate == died
		}
		switch {
		case fate == "":
		case text == "":
			text = fmt.Sprintf("rank %d, %s, %s", r.Rank, r.Process, fate)
		default:
			more++
		}
	}
	if gone {
		return ""
	}
	if more > 0 {
		text += fmt.Sprintf("; likewise %d more", more)
	}
	return text
}
