package lease

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"

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
	of, in := []byte("\x00"+RunVariable+"="+run), []byte("\x00"+nccltuner.DirVariable+"="+dir+"\x00")
	if run != "" {
		of = append(of, 0)
	}
	for _, e := range entries {
		pid, err := strconv.ParseUint(e.Name(), 10, 31)
		if err != nil || int(pid) == os.Getpid() {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil {
			continue // it has ended, or is another user's
		}
		if environ = slices.Concat([]byte{0}, environ); !bytes.Contains(environ, of) || !bytes.Contains(environ, in) {
			continue
		}
		if p, err := nccltuner.ProcessOf(uint32(pid)); err == nil {
			found = append(found, p)
		}
	}
	return found
}
