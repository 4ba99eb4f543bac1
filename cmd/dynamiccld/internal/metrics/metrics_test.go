package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/version"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type fakeBackend struct {
	control.Backend
	status control.Status
	views  []tuner.BucketView
	err    error
}

func (f *fakeBackend) Status(context.Context) (control.Status, error)      { return f.status, f.err }
func (f *fakeBackend) Buckets(context.Context) ([]tuner.BucketView, error) { return f.views, f.err }

var quiet = slog.New(slog.DiscardHandler)

func view(comm tuner.CommID, c actions.Collective, log2 uint8, choice string, meanNs, speedUp float64, calls uint64) tuner.BucketView {
	a, err := actions.Parse(choice)
	if err != nil {
		panic(err)
	}
	return tuner.BucketView{Comm: comm, Bucket: state.Bucket{Collective: c, Log2Bytes: log2}, Choice: a, SpeedUp: speedUp, Calls: calls,
		Choices: []tuner.ActionView{{Action: a, Estimate: tuner.Estimate{N: 9, MeanNs: meanNs}}}}
}

func sampleBackend() *fakeBackend {
	first := view(0xbeef, actions.AllReduce, 16, "Ring/LL128/24", 10_000, 2, 300)
	first.CusumSignal, first.Diagnosis = 0.5, agents.DiagnosisCongestion
	second := view(0xbeef, actions.AllReduce, 20, "default", 30_000, 1, 100)
	second.CusumCounter, second.Exploring = 0.25, true
	replays := tuner.ReplayTotals{Joined: 300, Incomplete: 4, Disagreed: 1, Late: 9}
	replays.By[actions.AllReduce] = tuner.ReplaySums{Replays: 300, SignalNs: 1_500_000, CounterNs: 600_000, Changes: 2}
	return &fakeBackend{
		status: control.Status{StartedAt: time.Unix(1_700_000_000, 0), StoreState: "ok", Samples: 11, Dropped: 2, Unjoined: 3,
			Decisions: 4000, Ignored: 5, Publications: 6, Core: tuner.Totals{Groups: 7, Ran: tuner.RanTotals{Chosen: 3, Default: 2, NotKnown: 1, Aggregated: 1}, Late: 1, Elsewhere: 21, Alarms: 8, Plans: 9, Replays: replays},
			FindingCounts: map[string]uint64{"congestion": 2},
			Comms: []control.CommStatus{{ID: "000000000000beef", Ranks: 8, RanksJoined: 8, Active: true, Epoch: 12, PlanVersion: 3},
				{ID: "000000000000cafe", Ranks: 4, RanksJoined: 1, Hosts: "apart"},
				{ID: "000000000000fade", Ranks: 4, RanksJoined: 2, Hosts: "met", PlanAgreed: 7, PlanVersion: 9, Follows: true}}},
		views: []tuner.BucketView{first, second},
	}
}

func collectorOf(b control.Backend) *collector {
	return &collector{b, version.Info{Version: "1.2.3", Go: "go1", ABI: 1}, quiet}
}

func TestNamesFollowConvention(t *testing.T) {
	problems, err := testutil.CollectAndLint(collectorOf(sampleBackend()))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	// The linter sees only what is collected: everything described must be.
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectorOf(sampleBackend()))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != len(all) {
		t.Errorf("%d families collected, %d described", len(families), len(all))
	}
}

func TestValues(t *testing.T) {
	// Speed-up: (300*10us*2 + 100*30us*1) / (300*10us + 100*30us) = 9/6.
	const want = `
# HELP dynamiccl_communicator_detector_ratio Detector's largest statistic as a fraction of its alarm threshold.
# TYPE dynamiccl_communicator_detector_ratio gauge
dynamiccl_communicator_detector_ratio{collective="AllReduce",comm="000000000000beef",latency="counter"} 0.25
dynamiccl_communicator_detector_ratio{collective="AllReduce",comm="000000000000beef",latency="signal"} 0.5
# HELP dynamiccl_communicator_hosts Ranks on several hosts: 1 where these have met, 0 where not, or not any more.
# TYPE dynamiccl_communicator_hosts gauge
dynamiccl_communicator_hosts{comm="000000000000cafe"} 0
dynamiccl_communicator_hosts{comm="000000000000fade"} 1
# HELP dynamiccl_communicator_plan_agreed Version of the plan that ranks of several hosts have in force; 0: NCCL's defaults.
# TYPE dynamiccl_communicator_plan_agreed gauge
dynamiccl_communicator_plan_agreed{comm="000000000000cafe"} 0
dynamiccl_communicator_plan_agreed{comm="000000000000fade"} 7
# HELP dynamiccl_communicator_speedup_ratio Time of NCCL's default over time of what is chosen.
# TYPE dynamiccl_communicator_speedup_ratio gauge
dynamiccl_communicator_speedup_ratio{collective="AllReduce",comm="000000000000beef"} 1.5
# HELP dynamiccl_communicators Communicators alive, by whether they are tuned or pass through.
# TYPE dynamiccl_communicators gauge
dynamiccl_communicators{state="passthrough"} 1
dynamiccl_communicators{state="tuned"} 2
# HELP dynamiccl_graph_replays_rejected_total Replays that are no measurement of a choice.
# TYPE dynamiccl_graph_replays_rejected_total counter
dynamiccl_graph_replays_rejected_total{reason="disagreed"} 1
dynamiccl_graph_replays_rejected_total{reason="incomplete"} 4
dynamiccl_graph_replays_rejected_total{reason="unkept"} 0
# HELP dynamiccl_graph_samples_rejected_total Samples of replays that fit none or nothing known.
# TYPE dynamiccl_graph_samples_rejected_total counter
dynamiccl_graph_samples_rejected_total{reason="late"} 9
dynamiccl_graph_samples_rejected_total{reason="unknown"} 0
# HELP dynamiccl_group_calls_ran_total Group calls by what became of what was asked for: each is in one.
# TYPE dynamiccl_group_calls_ran_total counter
dynamiccl_group_calls_ran_total{ran="aggregated"} 1
dynamiccl_group_calls_ran_total{ran="chosen"} 3
dynamiccl_group_calls_ran_total{ran="declined"} 0
dynamiccl_group_calls_ran_total{ran="default"} 2
dynamiccl_group_calls_ran_total{ran="disagreed"} 0
dynamiccl_group_calls_ran_total{ran="not_known"} 1
dynamiccl_group_calls_ran_total{ran="overruled"} 0
dynamiccl_group_calls_ran_total{ran="untold"} 0
# HELP dynamiccl_samples_dropped_total Samples that ranks dropped because a ring was full.
# TYPE dynamiccl_samples_dropped_total counter
dynamiccl_samples_dropped_total 2
# HELP dynamiccl_samples_elsewhere_total Samples of ranks on other hosts than their communicator's rank 0.
# TYPE dynamiccl_samples_elsewhere_total counter
dynamiccl_samples_elsewhere_total 21
# HELP dynamiccl_speedup_ratio Time of NCCL's default over time of what is chosen, all communicators.
# TYPE dynamiccl_speedup_ratio gauge
dynamiccl_speedup_ratio{collective="AllReduce"} 1.5
`
	err := testutil.CollectAndCompare(collectorOf(sampleBackend()), strings.NewReader(want), "dynamiccl_communicator_detector_ratio", "dynamiccl_communicator_hosts", "dynamiccl_communicator_plan_agreed",
		"dynamiccl_communicator_speedup_ratio", "dynamiccl_communicators", "dynamiccl_graph_replays_rejected_total", "dynamiccl_graph_samples_rejected_total",
		"dynamiccl_group_calls_ran_total", "dynamiccl_samples_dropped_total", "dynamiccl_samples_elsewhere_total", "dynamiccl_speedup_ratio")
	if err != nil {
		t.Error(err)
	}
}

// Replays have a series for every collective from the start.
func TestReplays(t *testing.T) {
	body := get(t, sampleBackend(), "/metrics").Body.String()
	for _, line := range []string{`replays_total{collective="AllReduce"} 300`, `replays_total{collective="AllToAll"} 0`, `replay_changes_total{collective="AllReduce"} 2`,
		`replays_seconds_total{collective="AllReduce",latency="signal"} 0.0015`, `replays_seconds_total{collective="AllReduce",latency="counter"} 0.0006`,
		`replays_seconds_total{collective="Broadcast",latency="signal"} 0`} {
		if !strings.Contains(body, "dynamiccl_graph_"+line+"\n") {
			t.Errorf("%s is not in\n%s", line, body)
		}
	}
}

// TestCommunicatorLeaves: a series of a communicator that is gone must not stay for ever.
func TestCommunicatorLeaves(t *testing.T) {
	b := sampleBackend()
	c := collectorOf(b)
	before := testutil.CollectAndCount(c, "dynamiccl_communicator_ranks")
	b.status.Comms = b.status.Comms[:1]
	if after := testutil.CollectAndCount(c, "dynamiccl_communicator_ranks"); before != 3 || after != 1 {
		t.Errorf("series before and after: %d and %d, want 3 and 1", before, after)
	}
}

func TestSeriesAreBounded(t *testing.T) {
	b := sampleBackend()
	b.status.Comms, b.views = nil, nil
	for i := range 200 {
		id := tuner.CommID(i)
		b.status.Comms = append(b.status.Comms, control.CommStatus{ID: control.CommID(id), Ranks: 8})
		for c := range actions.Collective(actions.NumCollectives) {
			for log2 := range uint8(12) {
				v := view(id, c, log2, "Tree/LL", 100, 1.1, uint64(i))
				v.Diagnosis = agents.Diagnosis(int(log2) % 20) // also ones that do not exist
				b.views = append(b.views, v)
			}
		}
	}
	if n := testutil.CollectAndCount(collectorOf(b)); n > 3000 {
		t.Errorf("%d series for 200 communicators", n)
	}
	// The busiest are those that are shown.
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectorOf(b))
	const omittedWant = "# HELP dynamiccl_communicators_omitted Communicators alive without series of their own, because there are too many.\n" +
		"# TYPE dynamiccl_communicators_omitted gauge\ndynamiccl_communicators_omitted 136\n"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(omittedWant), "dynamiccl_communicators_omitted"); err != nil {
		t.Error(err)
	}
	body := get(t, b, "/metrics").Body.String()
	if !strings.Contains(body, `dynamiccl_communicator_ranks{comm="00000000000000c7"}`) || strings.Contains(body, `dynamiccl_communicator_ranks{comm="0000000000000000"}`) {
		t.Error("the busiest communicators are not those that are shown")
	}
}

func TestSenselessMeasurements(t *testing.T) {
	b := sampleBackend()
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -3, 0} {
		v := view(0xbeef, actions.AllReduce, 3, "Ring/LL", bad, bad, math.MaxUint64)
		v.CusumCounter, v.CusumSignal = bad, bad
		b.views = append(b.views, v)
	}
	b.views = append(b.views, view(0xbeef, actions.Collective(99), 3, "Ring/LL", 1, 1, 1))
	for line := range strings.Lines(get(t, b, "/metrics").Body.String()) {
		if !strings.HasPrefix(line, "#") && (strings.Contains(line, " NaN") || strings.Contains(line, "Inf\n")) {
			t.Error(line)
		}
	}
}

func TestLoopThatDoesNotAnswer(t *testing.T) {
	b := sampleBackend()
	b.err = errors.New("busy")
	metrics := get(t, b, "/metrics")
	if metrics.Code != http.StatusOK || !strings.Contains(metrics.Body.String(), "dynamiccl_snapshot_success 0") {
		t.Errorf("metrics: %d %s", metrics.Code, metrics.Body)
	}
	if health := get(t, b, "/healthz"); health.Code != http.StatusServiceUnavailable || !strings.Contains(health.Body.String(), "busy") {
		t.Errorf("health: %d %s", health.Code, health.Body)
	}
}

func TestHandler(t *testing.T) {
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/v1/status": 200, "/v1/import": 404, "/": 404} {
		if got := get(t, sampleBackend(), path); got.Code != want {
			t.Errorf("%s: %d, want %d", path, got.Code, want)
		} else if want == 404 && !strings.Contains(got.Body.String(), "no GET "+path+" here; there are /metrics, /healthz, /v1/status, ") {
			t.Errorf("%s: %s", path, got.Body)
		}
	}
}

func get(t *testing.T, b control.Backend, path string) *httptest.ResponseRecorder {
	t.Helper()
	h := Handler(b, version.Info{Version: "1.2.3"}, quiet, func(mux *http.ServeMux) {
		mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") })
	})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, io.NopCloser(strings.NewReader(""))))
	return w
}
