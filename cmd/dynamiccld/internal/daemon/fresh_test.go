package daemon

import (
	"testing"
	"time"

	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// Where somebody came a short while ago the directory is looked at in every tick, else ten times a second.
func TestNewcomersAreLookedAtSoon(t *testing.T) {
	d, _ := open(t, testConfig(t))
	defer d.Close()
	looks := func() bool {
		scanned, read := d.scanned, d.readRecords
		time.Sleep(time.Millisecond)
		d.turn()
		return d.scanned != scanned && d.readRecords != read
	}
	d.turn()
	if looks() {
		t.Error("nobody came, and the directory is looked at in every tick")
	}
	d.take(&nccltuner.Changes{})
	if d.cameNs != 0 {
		t.Error("nobody came, and it is said that somebody did")
	}
	d.cameNs = d.now()
	if !looks() {
		t.Error("somebody came, and the next tick does not look")
	}
	d.cameNs -= state.Ns(freshFor)
	if looks() {
		t.Error("it is long since somebody came, and the directory is looked at in every tick")
	}
}
