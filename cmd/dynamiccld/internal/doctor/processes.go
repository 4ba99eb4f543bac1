package doctor

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checkProcesses looks for several copies of a library in one rank process: each copy has a state of its own.
func checkProcesses(r *Report, h Host, pids []uint32) {
	const check = "processes"
	unreadable, good := 0, 0
	for _, pid := range pids {
		libs, err := mapped(fmt.Sprintf("%s/proc/%d/maps", h.Root, pid))
		if err != nil {
			unreadable++
			continue
		}
		double := false
		for _, name := range slices.Sorted(maps.Keys(libs)) {
			if files := libs[name]; len(files) > 1 {
				double = true
				text := fmt.Sprintf("process %d has loaded %d copies of %s: %s", pid, len(files), name, strings.Join(files, ", "))
				if name == "libnccl" {
					r.warn(check, text, "make the program use one NCCL; only one of them is tuned")
				} else {
					r.fail(check, text, "install one copy and let both names lead to it")
				}
			}
		}
		if !double {
			good++
		}
	}
	if unreadable > 0 {
		r.warn(check, fmt.Sprintf("rank processes whose libraries cannot be read: %d", unreadable), "run doctor as the ranks' user or as root")
	}
	if good > 0 {
		r.ok(check, fmt.Sprintf("rank processes that have each library once: %d", good))
	}
}

// mapped gives the different files of ours and of NCCL that a process has mapped, by library. Two names of one file are
// one copy, so device and inode count.
func mapped(path string) (map[string][]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	libs, seen := map[string][]string{}, map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// proc_pid_maps(5): address permissions offset device inode path
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			continue
		}
		file := strings.Join(fields[5:], " ")
		name, known := libraryName(filepath.Base(file))
		id := name + " " + fields[3] + " " + fields[4]
		if !known || seen[id] {
			continue
		}
		seen[id] = true
		libs[name] = append(libs[name], file)
	}
	return libs, lines.Err()
}

func libraryName(base string) (string, bool) {
	switch {
	case strings.HasPrefix(base, "libnccl-tuner-dynamiccl"), strings.HasPrefix(base, "libnccl-profiler-dynamiccl"):
		return "the plugin", true
	case strings.HasPrefix(base, "libnccl.so"):
		return "libnccl", true
	}
	return "", false
}
