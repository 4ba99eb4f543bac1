package lease

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"dynamiccl/nccltuner"
)

// RunVariable holds the id of the `dynamiccld run` that a process belongs to.
const RunVariable = "DYNAMICCL_RUN"

// Behind are the processes that live and were started in the environment that a `dynamiccld run` gives for dir: a server that a script
// left in the background and that has not come to NCCL yet needs the daemon. run is that run's id; "": of any. What took the variables
// off, wrote its title over them, or is another user's, is not found.
func Behind(dir, run string) (found []nccltuner.Process) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var empty []string
	of, in := []byte("\x00"+RunVariable+"="+run), []byte("\x00"+nccltuner.DirVariable+"="+dir+"\x00")
	if run != "" {
		of = append(of, 0)
	}
	look := func(name string) {
		pid, err := strconv.ParseUint(name, 10, 31)
		if err != nil || int(pid) == os.Getpid() {
			return
		}
		environ, err := os.ReadFile(filepath.Join("/proc", name, "environ"))
		if err != nil {
			return // it has ended, or is another user's
		}
		if len(environ) == 0 {
			empty = append(empty, name)
			return
		}
		if environ = slices.Concat([]byte{0}, environ); !bytes.Contains(environ, of) || !bytes.Contains(environ, in) {
			return
		}
		if p, err := nccltuner.ProcessOf(uint32(pid)); err == nil {
			found = append(found, p)
		}
	}
	for _, e := range entries {
		look(e.Name())
	}
	had := map[string]int{} // looks that found arguments, which come shortly before the variables
	for range execLooks {
		again := empty
		empty = nil
		for _, name := range again {
			if _, err := os.Readlink(filepath.Join("/proc", name, "exe")); err != nil {
				continue // a thread of the system's, or one that has ended
			}
			if still := len(empty); had[name] >= noneLooks {
				look(name)
				empty = empty[:still] // it has no variables
				continue
			}
			arguments, err := os.ReadFile(filepath.Join("/proc", name, "cmdline"))
			if err == nil && len(arguments) > 0 {
				had[name]++
			}
			look(name)
		}
		if len(empty) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	return found
}

// execLooks is how often a process without variables and arguments is looked at again, a millisecond later each time: one that is just becoming
// another program has none until the machine has time for it.
const execLooks = 500

// noneLooks is how often a process has to be seen with arguments and no variables until it counts as one without: between the two the machine may
// have no time for it.
const noneLooks = 20
