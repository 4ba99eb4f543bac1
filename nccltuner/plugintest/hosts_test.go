package plugintest

import (
	"context"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"dynamiccl/internal/testbuild"
)

// agreement runs a test of nccltuner/hosts, without the preload library, of which what it tries is a part.
func agreement(t *testing.T, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	said, err := exec.CommandContext(ctx, filepath.Join(preloadTests(), program), args...).CombinedOutput()
	t.Logf("%s %v\n%s", program, args, said)
	if err != nil {
		t.Errorf("%s %v: %v", program, args, err)
	}
}

func TestHostsSources(t *testing.T) {
	testbuild.Sources(t, "../hosts/*.[ch]", "../hosts/test/*")
}

// Every interleaving of a rank's thread and the one that speaks for it, of several ranks, whatever the hub decides.
func TestFenceExhaustive(t *testing.T) {
	worlds := []string{"two", "gone", "three"}
	if long() {
		worlds = append(worlds, "row", "three-cut")
	}
	for _, world := range worlds {
		agreement(t, "fence_check", world)
	}
}

func TestFenceCheckFindsPlantedMistakes(t *testing.T) {
	for mistake := range 4 {
		agreement(t, "fence_check", "all", strconv.Itoa(mistake+1))
	}
}

// Hub and ranks in thousands of worlds of chance.
func TestHub(t *testing.T) {
	worlds := "6000"
	if long() {
		worlds = "200000"
	}
	agreement(t, "test_hub", worlds)
}

// How soon plans come into force on ranks that go on while they are asked.
func TestHubPace(t *testing.T) { agreement(t, "test_pace") }

func TestHubFindsPlantedMistakes(t *testing.T) {
	for of, mistakes := range map[string]int{"hub": 6, "rank": 4, "fence": 4} {
		for mistake := range mistakes {
			agreement(t, "test_hub", of, strconv.Itoa(mistake+1))
		}
	}
}
