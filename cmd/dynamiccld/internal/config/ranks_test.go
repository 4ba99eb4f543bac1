package config

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestValuesThatRanksDoNotUnderstandAreWarnings(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"DYNAMICCL_NO_KERNELS=on", "want true or false"},
		{"DYNAMICCL_HOSTS=off", "want true or false"},
		{"DYNAMICCL_GIN=true", "want 0 or 1"},
		{"DYNAMICCL_COUNT_CALLS=yes", "want 0 or 1"},
		{"DYNAMICCL_LATE_S=-1", "want 0 to 86400"},
		{"DYNAMICCL_GIN_WAIT_S=30s", "want 1 to 3600"},
		{"DYNAMICCL_GIN_PEER_WAIT_S=0", "want 1 to 604800"},
		{"DYNAMICCL_SCRATCH_MIB=5000", "want 1 to 4096"},
		{"DYNAMICCL_SCRATCH_TOTAL_MIB=0", "want 1 to 65536"},
		{"DYNAMICCL_SOCKET_THREADS=9", "want 0 to 8"},
		{"DYNAMICCL_NO_KERNELS=TRUE", ""},
		{"DYNAMICCL_HOSTS=0", ""},
		{"DYNAMICCL_GIN=1", ""},
		{"DYNAMICCL_LATE_S=0", ""},
		{"DYNAMICCL_GIN_NET=anything", ""},
	} {
		name, value, _ := strings.Cut(c.env, "=")
		l, err := load(t, "", []string{c.env})
		if c.want == "" && err == nil && len(l.Warnings) == 0 {
			continue
		}
		if err != nil || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], name+` is "`+value+`"`) || !strings.HasSuffix(l.Warnings[0], c.want) {
			t.Errorf("%s: %q, %v", c.env, l.Warnings, err)
		}
	}
	for name := range rankEnv {
		if !slices.Contains(otherEnv, name) {
			t.Errorf("%s is no variable of ours", name)
		}
	}
}

// The bounds are those of the sources that read them.
func TestBoundsAreThoseOfRanks(t *testing.T) {
	for _, c := range []struct{ file, is, name, want string }{
		{"kernels/host/memory.c", `#define MOST_MIB (\d+)`, "SCRATCH_MIB", "1 to "},
		{"kernels/host/room.c", `#define MOST_TOTAL_MIB (\d+)`, "SCRATCH_TOTAL_MIB", "1 to "},
		{"kernels/host/memory.c", `#define MOST_LATE_S (\d+)`, "LATE_S", "0 to "},
		{"kernels/host/gin.c", `"DYNAMICCL_GIN_WAIT_S", (\d+)`, "GIN_WAIT_S", "1 to "},
		{"kernels/host/gin.c", `#define MOST_PEER_WAIT_S (\d+)`, "GIN_PEER_WAIT_S", "1 to "},
		{"nccltuner/preload/mover_count.h", `#define DYN_MOVERS (\d+)`, "SOCKET_THREADS", "0 to "},
	} {
		text, err := os.ReadFile("../../../../" + c.file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(c.is).FindSubmatch(text)
		if found == nil || rankEnv[EnvPrefix+c.name].want != c.want+string(found[1]) {
			t.Errorf("%s of %s: %q, where %s is wanted", c.name, c.file, found, rankEnv[EnvPrefix+c.name].want)
		}
	}
}
