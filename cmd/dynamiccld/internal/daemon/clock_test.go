package daemon

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// near is nil where a time is what it should be, but for what the test takes.
func near(got, want time.Duration) error {
	if off := got - want; off < -2*time.Second || off > 10*time.Second {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return nil
}

// Somebody sets the host's clock while a daemon runs, and while none does: how long ago something was stays right as far as anybody
// can know, what would lie in the future is not known, and nothing is refused.
func TestHostsClockIsSet(t *testing.T) {
	const nccl = 22809
	shape := state.Shape{Ranks: 4, Nodes: 1}
	key := tuner.Key{Machine: "m", NCCLVersion: nccl, Shape: shape, Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}}
	for _, c := range []struct {
		name        string
		while, then time.Duration // by which the clock is set while the first daemon runs, and before the second starts
		known       bool          // since when, to the second daemon
		ago         time.Duration // how long before, by the clock that was set
	}{
		{"not", 0, 0, true, 10 * time.Minute},
		{"forward under the daemon", 5 * time.Hour, 0, true, 10 * time.Minute},
		{"back under the daemon", -5 * time.Hour, 0, true, 10 * time.Minute},
		{"right, from 1970", 56 * 365 * 24 * time.Hour, 0, true, 10 * time.Minute},
		{"forward between daemons", 0, 5 * time.Hour, true, 5*time.Hour + 10*time.Minute}, // nobody can tell that from five hours without a daemon
		{"back between daemons", 0, -5 * time.Hour, false, 0},
		{"forward and back again", 5 * time.Hour, -5 * time.Hour, false, 0},
		{"to before 1970", -90 * 365 * 24 * time.Hour, 0, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(t)
			var set time.Duration
			d, err := openBy(func() time.Time { return time.Now().Add(set) }, cfg, "test", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			before := d.now() - state.Ns(10*time.Minute)
			view := tuner.BucketView{Bucket: key.Bucket, SinceNs: before, DiagnosisNs: before, MeasuredNs: before}
			set = c.while
			if now := d.now(); now-before > state.Ns(11*time.Minute) || now < before {
				t.Fatalf("the daemon's own clock went from %d to %d", before, now)
			}
			wall := d.wall()
			if shown := control.FromView(view, d.now(), wall); near(wall.Sub(*shown.Since), 10*time.Minute) != nil || near(wall.Sub(*shown.MeasuredAt), 10*time.Minute) != nil {
				t.Errorf("since %v, measured from %v on, and now is %v", shown.Since, shown.MeasuredAt, wall)
			}
			if up := wall.Sub(d.startedAt()); near(up, 0) != nil {
				t.Errorf("started %v ago", up)
			}
			d.learn([]tuner.Learned{{Key: key, CostNs: 1, Default: 1, Calls: 9, SinceNs: before, Diagnosis: agents.DiagnosisCongestion, DiagnosisNs: before}})
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}

			d, err = openBy(func() time.Time { return time.Now().Add(c.while + c.then) }, cfg, "test", slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			prior := d.known("m", "", shape, nccl)
			if len(prior) != 1 {
				t.Fatalf("%d records are known", len(prior))
			}
			l := prior[0]
			if !c.known && (l.SinceNs != 0 || l.DiagnosisNs != 0) {
				t.Errorf("since %d, diagnosed at %d; want neither known", l.SinceNs, l.DiagnosisNs)
			}
			if c.known {
				for _, at := range []state.Ns{l.SinceNs, l.DiagnosisNs} {
					if err := near(time.Duration(d.now()-at), c.ago); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// A host that was suspended for hours: what was before is so much longer ago, in what people are shown and in the store.
func TestHostWasSuspended(t *testing.T) {
	const hours = 8 * time.Hour
	slept := time.Duration(0)
	d, err := openBy(func() time.Time { return time.Now().Add(slept) }, testConfig(t), "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	awake := d.sinceBoot
	d.sinceBoot = func() state.Ns { return awake() + state.Ns(slept) }
	view := tuner.BucketView{SinceNs: d.now(), DiagnosisNs: d.now(), MeasuredNs: d.now()}
	before := d.now()
	slept = hours // the host's clock goes on meanwhile, and Go's monotonic one does not
	d.swept = 0
	d.turn()
	wall := d.wall()
	shown := control.FromView(view, d.now(), wall)
	for what, since := range map[string]time.Duration{"the choice was made": wall.Sub(*shown.Since), "it was measured": wall.Sub(*shown.MeasuredAt),
		"the daemon started": wall.Sub(d.startedAt()), "its clock says": time.Duration(d.now() - before)} {
		if err := near(since, hours); err != nil {
			t.Errorf("%s ago: %v", what, err)
		}
	}
	if by := d.ahead(); by != 0 {
		t.Errorf("the host's clock is said to have been set by %v", time.Duration(by))
	}
}
