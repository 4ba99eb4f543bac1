package metrics

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/version"
	"dynamiccl/tuner"
)

// snapshotTimeout is below Prometheus' default scrape timeout of 10 s.
const snapshotTimeout = 5 * time.Second

// collector turns one snapshot of the daemon into series.
type collector struct {
	backend control.Backend
	build   version.Info
	log     *slog.Logger
}

func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range all {
		ch <- d
	}
}

// emit sends series of one scrape.
type emit chan<- prometheus.Metric

func (ch emit) gauge(d *prometheus.Desc, v float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (ch emit) counter(d *prometheus.Desc, v uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (ch emit) seconds(d *prometheus.Desc, ns uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(ns)/1e9, labels...)
}

func (c *collector) Collect(out chan<- prometheus.Metric) {
	ch := emit(out)
	ch.gauge(buildInfo, 1, c.build.Version, c.build.Revision, c.build.Go, strconv.Itoa(c.build.ABI))
	ctx, cancel := context.WithTimeout(context.Background(), snapshotTimeout)
	defer cancel()
	st, err := c.backend.Status(ctx)
	var views []tuner.BucketView
	if err == nil {
		views, err = c.backend.Buckets(ctx)
	}
	if err != nil {
		c.log.Warn("scrape without a snapshot of the daemon", "err", err)
		ch.gauge(snapshotSuccess, 0)
		return
	}
	ch.gauge(snapshotSuccess, 1)
	ch.daemon(st)
	ch.bucketStates(views)
	ch.comms(st, views)
}

func (ch emit) daemon(st control.Status) {
	ch.gauge(startTime, float64(st.StartedAt.UnixNano())/1e9)
	ch.gauge(storeOK, truth(st.StoreState == "ok"))
	ch.counter(samples, st.Samples)
	ch.counter(samplesDropped, st.Dropped)
	ch.counter(samplesUnjoined, st.Unjoined)
	ch.counter(samplesUntold, st.Untold)
	ch.counter(samplesElsewhere, st.Core.Elsewhere)
	ch.counter(samplesRejected, st.Core.Late, "late")
	ch.counter(samplesRejected, st.Core.Unknown, "unknown")
	ch.counter(groups, st.Core.Groups)
	ch.counter(groupsRejected, st.Core.Incomplete, "incomplete")
	ch.counter(groupsRejected, st.Core.Disagreed, "disagreed")
	ch.counter(groupsRejected, st.Core.Overruled, "overruled")
	ch.counter(groupsRejected, st.Core.Slow, "slow")
	ch.ran(st.Core.Ran)
	ch.counter(decisions, st.Decisions)
	ch.counter(ignored, st.Ignored)
	ch.counter(plans, st.Core.Plans)
	ch.counter(plansAgreed, st.Core.Agreed)
	ch.counter(publications, st.Publications)
	ch.counter(alarms, st.Core.Alarms)
	ch.counter(stepAudits, st.Core.Audits)
	ch.counter(stepVetoes, st.Core.Vetoes)
	// Every diagnosis from the start: a counter that appears with its first event hides that event from rate().
	for d := agents.DiagnosisNone; d < agents.NumDiagnoses; d++ {
		ch.counter(findings, st.FindingCounts[d.String()], d.String())
	}
	ch.graphs(st.Core.Replays)
	ch.trips(st.Core.Trips)
	tuned := 0
	for _, c := range st.Comms {
		if c.Active || c.PlanAgreed != 0 {
			tuned++
		}
	}
	ch.gauge(communicators, float64(tuned), "tuned")
	ch.gauge(communicators, float64(len(st.Comms)-tuned), "passthrough")
}

func (ch emit) ran(t tuner.RanTotals) {
	ch.counter(groupsRan, t.Chosen, "chosen")
	ch.counter(groupsRan, t.Default, "default")
	ch.counter(groupsRan, t.Overruled, "overruled")
	ch.counter(groupsRan, t.NotKnown, "not_known")
	ch.counter(groupsRan, t.Aggregated, "aggregated")
	ch.counter(groupsRan, t.Disagreed, "disagreed")
	ch.counter(groupsRan, t.Declined, "declined")
	ch.counter(groupsRan, t.Untold, "untold")
}

// graphs tells of all collectives from the start, as findings are.
func (ch emit) graphs(t tuner.ReplayTotals) {
	for c := range actions.Collective(actions.NumCollectives) {
		sums := t.By[c]
		ch.counter(graphReplays, sums.Replays, c.String())
		ch.seconds(graphSeconds, sums.SignalNs, c.String(), "signal")
		ch.seconds(graphSeconds, sums.CounterNs, c.String(), "counter")
		ch.counter(graphChanges, sums.Changes, c.String())
	}
	ch.counter(graphRejected, t.Incomplete, "incomplete")
	ch.counter(graphRejected, t.Disagreed, "disagreed")
	ch.counter(graphRejected, t.Unkept, "unkept")
	ch.counter(graphSamples, t.Late, "late")
	ch.counter(graphSamples, t.Unknown, "unknown")
}

func (ch emit) trips(t tuner.TripTotals) {
	ch.counter(ginTrips, t.Joined)
	ch.counter(ginCounters, t.Counters)
	ch.counter(ginElsewhere, t.Elsewhere)
	ch.seconds(ginSeconds, t.SignalNs, "signal")
	ch.seconds(ginSeconds, t.CounterNs, "counter")
	ch.counter(ginChanges, t.Changes)
	ch.counter(ginRejected, t.Incomplete, "incomplete")
	ch.counter(ginRejected, t.Rejected, "rejected")
	ch.counter(ginRejected, t.Unknown, "unknown")
	ch.counter(ginRejected, t.Unkept, "unkept")
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
