package tunersim

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"testing"

	"dynamiccl/agents"
)

// experiment is the issue's: conditions change under every bucket, both baselines, three seeds.
func experiment(tables []*Table, calls int) FiguresConfig {
	return FiguresConfig{Tables: tables, PhaseCalls: calls, Learners: []string{agents.NameCoordinateDescent, agents.NameUCB},
		Seeds: []uint64{1, 2, 3}, Noise: DefaultNoise(), Timing: DefaultTiming(), Guard: agents.DefaultGuardConfig()}
}

func (f PhaseFigures) String() string {
	return fmt.Sprintf("%-18s %-12s calls %3.0f (hard %3.0f), at 64 %.3f (hard %.3f), within 10%% %3.0f%%, total %.3f (best %.3f), worst bucket %.3f %s, trials %.0f",
		f.Learner, f.Condition, f.MedianCalls, f.HardCalls, f.MedianAt64, f.HardAt64, 100*f.WithinAt64, f.Total, f.BestTotal, f.WorstBucket, f.WorstBucketName, f.Trials)
}

// check holds the figures: within 10% of the best 64 calls after a change, and a sum of at most 1.02 of NCCL's.
func check(t *testing.T, cfg FiguresConfig) {
	t.Helper()
	figures, err := AdaptationFigures(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != len(cfg.Learners)*len(cfg.Tables) {
		t.Fatalf("%d figures", len(figures))
	}
	for _, f := range figures {
		t.Log(f)
		if f.MedianAt64 > within || f.HardAt64 > within+0.02 {
			t.Errorf("64 calls after the change the median cost is %.3f of the best, %.3f where the default is bad", f.MedianAt64, f.HardAt64)
		}
		if f.MedianCalls > adaptCalls || f.HardCalls > adaptCalls {
			t.Errorf("%.0f calls until adapted, %.0f where the default is bad", f.MedianCalls, f.HardCalls)
		}
		if f.Total > 1.02 {
			t.Errorf("total is %.3f of NCCL's default", f.Total)
		}
	}
}

func TestAdaptsToNetworkLoad(t *testing.T) {
	quiet, network := load(t, quietFile), load(t, networkFile)
	check(t, experiment([]*Table{quiet, network, quiet}, 300))
}

func TestAdaptsToCPULoad(t *testing.T) {
	quiet, network, cpu := load(t, quietFile), load(t, networkFile), load(t, cpuFile)
	check(t, experiment([]*Table{quiet, network, cpu, quiet}, 300))
}

// On NVLink the default is nearly the best and one wrong trial at 256 MiB costs fifty calls.
func TestHarmsNothingOnNVLink(t *testing.T) {
	check(t, experiment([]*Table{load(t, nvlinkFile)}, 300))
}

// Other rhythms: a bucket alone on its communicator, one of sixteen, twice the noise, more seeds.
func TestAdaptsAtOtherRhythms(t *testing.T) {
	if os.Getenv("DYN_LONG") == "" {
		t.Log("one rhythm only; DYN_LONG=1 runs all")
	}
	quiet, network, nvlink := load(t, quietFile), load(t, networkFile), load(t, nvlinkFile)
	for i, c := range []struct {
		epochCalls, minLag, maxLag int
		sigma                      float64
	}{{16, 1, 1, 0.05}, {1, 2, 4, 0.05}, {4, 1, 2, 0.1}} {
		if i > 0 && os.Getenv("DYN_LONG") == "" {
			break
		}
		for _, cfg := range []FiguresConfig{experiment([]*Table{quiet, network, quiet}, 300), experiment([]*Table{nvlink}, 1000)} {
			cfg.Seeds = []uint64{11, 12, 13, 14}
			cfg.Timing.EpochCalls, cfg.Timing.MinLag, cfg.Timing.MaxLag, cfg.Noise.Sigma = c.epochCalls, c.minLag, c.maxLag, c.sigma
			check(t, cfg)
		}
	}
}

func TestDefaultLearnerChangesNothing(t *testing.T) {
	cfg := experiment([]*Table{load(t, quietFile), load(t, networkFile)}, 100)
	cfg.Learners = []string{agents.NameDefault}
	figures, err := AdaptationFigures(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range figures {
		if f.Total != 1 || f.Trials != 0 || f.WorstBucket != 1 {
			t.Errorf("%v", f)
		}
	}
}

func TestSameSeedSameFigures(t *testing.T) {
	cfg := experiment([]*Table{load(t, quietFile), load(t, cpuFile)}, 128)
	cfg.Seeds = cfg.Seeds[:1]
	a, err := AdaptationFigures(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := AdaptationFigures(cfg)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("same seed, other figures:\n%v\n%v", a, b)
	}
	cfg.Seeds[0]++
	if c, _ := AdaptationFigures(cfg); reflect.DeepEqual(a, c) {
		t.Error("another seed gives the same figures: the seed is not used")
	}
}

func TestBadRuns(t *testing.T) {
	quiet := load(t, quietFile)
	good := Run{Learner: agents.NameUCB, Bucket: bucket1K, Phases: []Phase{{quiet, 64}}, Timing: DefaultTiming(), Guard: agents.DefaultGuardConfig()}
	if _, err := good.Do(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Run){
		"no phases":        func(r *Run) { r.Phases = nil },
		"no calls":         func(r *Run) { r.Phases = []Phase{{quiet, 0}} },
		"no table":         func(r *Run) { r.Phases = []Phase{{nil, 64}} },
		"unmeasured":       func(r *Run) { r.Bucket.Collective = 0 },
		"no epoch":         func(r *Run) { r.Timing.EpochCalls = 0 },
		"lag":              func(r *Run) { r.Timing.MaxLag = 0 },
		"detects too soon": func(r *Run) { r.Timing.MinDetect = 0 },
	} {
		r := good
		spoil(&r)
		if _, err := r.Do(); !errors.Is(err, ErrBadRun) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good.Learner = "oracle"
	if _, err := good.Do(); !errors.Is(err, agents.ErrUnknownLearner) {
		t.Errorf("unknown learner: %v", err)
	}
	if _, err := AdaptationFigures(FiguresConfig{}); err == nil {
		t.Error("figures of nothing")
	}
}

func BenchmarkAdaptation(b *testing.B) {
	cfg := experiment([]*Table{load(b, quietFile), load(b, networkFile), load(b, quietFile)}, 400)
	for b.Loop() {
		figures, err := AdaptationFigures(cfg)
		if err != nil {
			b.Fatal(err)
		}
		for _, f := range figures {
			name := fmt.Sprintf("%s-%d-%s", f.Learner, f.Phase, f.Condition)
			b.ReportMetric(f.MedianAt64, name+"-at64/best")
			b.ReportMetric(f.HardCalls, name+"-calls")
			b.ReportMetric(f.Total, name+"-total/default")
		}
	}
}
