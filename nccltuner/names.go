package nccltuner

import (
	"fmt"
	"strconv"
	"strings"
)

// What the files of ranks begin with, whole or in the making.
const (
	recordPrefix = "comm-"
	ringPrefix   = "ring-"
)

// OfRanks reports that a file of the directory is a rank's, by its name.
func OfRanks(name string) bool {
	return strings.HasPrefix(name, recordPrefix) || strings.HasPrefix(name, ringPrefix)
}

// recordName is the file of a communicator's record.
func recordName(commID uint64) string { return fmt.Sprintf(recordPrefix+"%016x.shm", commID) }

// ringName is the file of a process's ring.
func ringName(p Process) string { return fmt.Sprintf(ringPrefix+"%d-%d.shm", p.PID, p.StartTime) }

// parseRecordName accepts exactly what recordName writes: two names for one communicator would be two records.
func parseRecordName(name string) (commID uint64, ok bool) {
	hex, ok := middle(name, recordPrefix)
	if !ok || len(hex) != 16 || strings.ToLower(hex) != hex {
		return 0, false
	}
	commID, err := strconv.ParseUint(hex, 16, 64)
	return commID, err == nil
}

// parseRingName accepts exactly what ringName writes for a process that can exist.
func parseRingName(name string) (p Process, ok bool) {
	text, ok := middle(name, ringPrefix)
	if !ok {
		return p, false
	}
	pidText, startText, ok := strings.Cut(text, "-")
	if !ok {
		return p, false
	}
	pid, err := strconv.ParseUint(pidText, 10, 31)
	if err != nil {
		return p, false
	}
	start, err := strconv.ParseUint(startText, 10, 64)
	if err != nil {
		return p, false
	}
	p = Process{uint32(pid), start}
	return p, p.valid() && ringName(p) == name // leading zeros and signs come out differently
}

func middle(name, prefix string) (string, bool) {
	text, ok := strings.CutPrefix(name, prefix)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(text, ".shm")
}
