package paired

import (
	"slices"
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/sweep"
)

func msec(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func TestParse(t *testing.T) {
	for text, want := range map[string]Arm{
		"run:ucb":                      {Kind: ArmRun, Learner: "ucb"},
		"plain+NCCL_PROTO=LL":          {Kind: ArmPlain, Environ: []string{"NCCL_PROTO=LL"}},
		"run:ucb+A=b=c+NCCL_MAX_CTAS=": {Kind: ArmRun, Learner: "ucb", Environ: []string{"A=b=c", "NCCL_MAX_CTAS="}},
	} {
		want.Name = text
		if a, err := ParseArm(text); err != nil || a.Name != text || a.Kind != want.Kind || a.Learner != want.Learner ||
			!slices.Equal(a.Environ, want.Environ) {
			t.Errorf("%+v, %v; want %+v", a, err, want)
		}
	}
	if a, err := ParseArm("observe"); err != nil || a.Learner != "default" {
		t.Errorf("%+v, %v", a, err)
	}
	for _, text := range []string{"", "fast", "plain:ucb", "observe:ucb", "run:", "+A=b", "plain+", "plain+A", "plain+=b"} {
		if _, err := ParseArm(text); err == nil {
			t.Errorf("arm %q was taken", text)
		}
	}
	if p, err := ParsePhase("quiet:90s"); err != nil || p != (Phase{sweep.LoadNone, 90 * time.Second}) || p.Name() != "quiet" {
		t.Errorf("%+v, %v", p, err)
	}
	for _, text := range []string{"quiet", "quiet:0s", "noise:5s", "network:5", "network:20ms"} {
		if _, err := ParsePhase(text); err == nil {
			t.Errorf("phase %q was taken", text)
		}
	}
}

func TestCheck(t *testing.T) {
	good := func() Options {
		return Options{Ranks: 4, Comms: 1, Nodes: 2, Arms: []Arm{{Name: "plain", Kind: ArmPlain}, {Name: "run", Kind: ArmRun}}, Phases: []Phase{{sweep.LoadNone, time.Second}},
			Collectives: []string{"AllReduce"}, Sizes: []uint64{1024}, Calls: 40, Batch: time.Second, Time: TimeGPU, Timeout: time.Second, Store: "s.db"}
	}
	if o := good(); o.Check() != nil {
		t.Fatal(o.Check())
	}
	for says, spoil := range map[string]func(o *Options){
		"2 or more":         func(o *Options) { o.Ranks, o.Nodes = 1, 1 },
		"same number":       func(o *Options) { o.Nodes = 3 },
		"named twice":       func(o *Options) { o.Arms = append(o.Arms, o.Arms[1]) },
		"the base":          func(o *Options) { o.Arms = o.Arms[:1] },
		"--min-rounds -1":   func(o *Options) { o.LeastRounds = -1 },
		"no collectives":    func(o *Options) { o.Collectives = nil },
		"--sizes 0":         func(o *Options) { o.Sizes = []uint64{0} },
		"--load-size -5":    func(o *Options) { o.LoadSize = -5 },
		"--batch 0s":        func(o *Options) { o.Batch = 0 },
		"no phases":         func(o *Options) { o.Phases = nil },
		"--calls 1000":      func(o *Options) { o.Calls = 1000 },
		"stream, gpu, ":     func(o *Options) { o.Time = "clock" },
		"--comms 0: want 1": func(o *Options) { o.Comms = 0 },
		"want 1 to 8":       func(o *Options) { o.Comms, o.Time = 9, TimeGraph },
		"add --time graph,": func(o *Options) { o.Comms = 2 },
		"one arm's":         func(o *Options) { o.Arms[1].Kind = ArmPlugin },
		"32 bytes":          func(o *Options) { o.Sizes, o.Collectives = []uint64{64}, []string{"AllGather"} },
		`--collectives "X"`: func(o *Options) { o.Collectives = []string{"X"} },
	} {
		o := good()
		spoil(&o)
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %q", err, says)
		}
	}
}
