package nccltuner

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"dynamiccl/actions"
)

// Names are those that the ranks' own lines have.
func TestGINStates(t *testing.T) {
	source, err := os.ReadFile("../kernels/host/gin_state.c")
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`names\[DYN_NUM_GIN_STATES\] = \{([^}]*)\}`).FindSubmatch(source)
	if names == nil {
		t.Fatal("gin_state.c has no names")
	}
	for i, name := range strings.Split(string(names[1]), ",") {
		if got := GINState(i).String(); got != strings.Trim(strings.TrimSpace(name), `"`) {
			t.Errorf("state %d is %q here and %s there", i, got, name)
		}
	}
	if GINState(NumGinStates).String() != "unknown" || GINState(NumGinStates).Begun() {
		t.Error("a state that nobody knows has a name")
	}
	for s := range GINState(NumGinStates) {
		if s.Usable() != (s >= GinActive && s <= GinComplete) || s.Begun() != (s >= GinInitialising) {
			t.Errorf("%s: %v, %v", s, s.Usable(), s.Begun())
		}
	}
}

func TestGINView(t *testing.T) {
	rank := &ABIRank{Gin: GinActive | BackendGdaki<<8 | 4<<16 | 8<<24, GinSecond: GinFailed | BackendProxy<<8 | 2<<16, GinSignals: 256, GinCounters: 128}
	if got, want := ginViews(rank), [2]GINView{{GinActive, actions.BackendGDAKI, 4, 128, 256, 128}, {GinFailed, actions.BackendProxy, 2, 0, 256, 128}}; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	rank.Gin, rank.GinSecond = GinInitialising, 0
	if got, want := ginViews(rank), [2]GINView{{State: GinInitialising}}; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	for code, want := range map[uint32]int{0: 0, 1: 1, 9: 256, 31: 1 << 30, 32: 0, 255: 0} {
		if got := ginView(rank, GinActive|BackendProxy<<8|code<<24); got.Depth != want || got.State != GinActive || got.Contexts != 0 {
			t.Errorf("depth of code %d: %+v, want %d", code, got, want)
		}
	}
	rank.Gin = GinActive | 9<<8
	if got := ginViews(rank); got[0].Backend != actions.BackendNone {
		t.Errorf("%+v", got)
	}
}
