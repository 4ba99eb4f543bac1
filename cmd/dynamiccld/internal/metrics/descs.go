package metrics

import "github.com/prometheus/client_golang/prometheus"

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("dynamiccl_"+name, help, labels, nil)
}

// Labels: comm is the communicator id in 16 hexadecimal digits, collective and diagnosis are names of closed sets.
var (
	buildInfo       = desc("build_info", "Which build this is; always 1.", "version", "revision", "goversion", "abi")
	startTime       = desc("start_time_seconds", "When the daemon started, seconds since 1970.")
	snapshotSuccess = desc("snapshot_success", "Whether the daemon's loop answered this scrape in time.")
	storeOK         = desc("store_ok", "Whether what is learned reaches the store file; 0: it is kept in memory only.")

	samples          = desc("samples_total", "Samples read from the rings of rank processes.")
	samplesDropped   = desc("samples_dropped_total", "Samples that ranks dropped because a ring was full.")
	samplesUnjoined  = desc("samples_unjoined_total", "Samples that match no getCollInfo call.")
	samplesUntold    = desc("samples_untold_total", "Samples that found no room on their way between hosts.")
	samplesElsewhere = desc("samples_elsewhere_total", "Samples of ranks on other hosts than their communicator's rank 0.")
	samplesRejected  = desc("samples_rejected_total", "Samples that fit no open group call or nothing known.", "reason")
	groups           = desc("group_calls_total", "Collective calls of a whole communicator that were observed.")
	groupsRejected   = desc("group_calls_rejected_total", "Group calls that are no measurement of a choice.", "reason")
	groupsRan        = desc("group_calls_ran_total", "Group calls by what became of what was asked for: each is in one.", "ran")

	decisions    = desc("decisions_total", "getCollInfo calls of all ranks.")
	ignored      = desc("decisions_ignored_total", "Planned actions that NCCL had marked as impossible after all.")
	plans        = desc("plans_total", "Plans decided.")
	plansAgreed  = desc("plans_agreed_total", "Plans that ranks on several hosts were seen to have in force.")
	publications = desc("publications_total", "Plans published to ranks.")
	alarms       = desc("alarms_total", "Changes that the detector found.")
	stepAudits   = desc("step_audits_total", "Comparisons of a program's steps with those under NCCL's default that have come to an end.")
	stepVetoes   = desc("step_vetoes_total", "Of these, those that put NCCL's default in force because steps are longer with what was chosen.")
	findings     = desc("findings_total", "Findings by diagnosis.", "diagnosis")

	graphReplays  = desc("graph_replays_total", "Replays of our kernels in CUDA graphs that all ranks told of, about one in 64.", "collective")
	graphSeconds  = desc("graph_replays_seconds_total", "Time that these replays took: until the data is there (signal), until it is sent (counter).", "collective", "latency")
	graphChanges  = desc("graph_replay_changes_total", "Changes of what replays take.", "collective")
	graphRejected = desc("graph_replays_rejected_total", "Replays that are no measurement of a choice.", "reason")
	graphSamples  = desc("graph_samples_rejected_total", "Samples of replays that fit none or nothing known.", "reason")

	ginTrips     = desc("gin_trips_total", "Puts over GIN, there and back, that both ranks told of, each way of each.")
	ginCounters  = desc("gin_counters_total", "Of these, those whose counter was timed, too.")
	ginElsewhere = desc("gin_trips_elsewhere_total", "What ranks on other hosts than rank 0's told of puts over GIN.")
	ginSeconds   = desc("gin_trips_seconds_total", "Time that these took: there and back (signal), until the source was read (counter).", "latency")
	ginChanges   = desc("gin_link_changes_total", "Changes of what puts take on a way that the diagnosis has a name for.")
	ginRejected  = desc("gin_trips_rejected_total", "What ranks told of puts that is no measurement of a way.", "reason")

	communicators = desc("communicators", "Communicators alive, by whether they are tuned or pass through.", "state")
	omitted       = desc("communicators_omitted", "Communicators alive without series of their own, because there are too many.")
	buckets       = desc("buckets", "Size buckets seen, by what is done with them.", "collective", "state")
	speedUp       = desc("speedup_ratio", "Time of NCCL's default over time of what is chosen, all communicators.", "collective")

	commRanks   = desc("communicator_ranks", "Ranks of the communicator.", "comm")
	commJoined  = desc("communicator_ranks_joined", "Ranks that have registered.", "comm")
	commEpoch   = desc("communicator_epoch", "Last epoch that its ranks have decided.", "comm")
	commPlan    = desc("communicator_plan_version", "Version of the newest plan published; 0: NCCL's defaults.", "comm")
	commHosts   = desc("communicator_hosts", "Ranks on several hosts: 1 where these have met, 0 where not, or not any more.", "comm")
	commAgreed  = desc("communicator_plan_agreed", "Version of the plan that ranks of several hosts have in force; 0: NCCL's defaults.", "comm")
	commSpeedUp = desc("communicator_speedup_ratio", "Time of NCCL's default over time of what is chosen.", "comm", "collective")
	commAlarm   = desc("communicator_detector_ratio", "Detector's largest statistic as a fraction of its alarm threshold.", "comm", "collective", "latency")
	commState   = desc("communicator_buckets_diagnosed", "Buckets by their last diagnosis.", "comm", "diagnosis")
)

var all = []*prometheus.Desc{buildInfo, startTime, snapshotSuccess, storeOK,
	samples, samplesDropped, samplesUnjoined, samplesUntold, samplesElsewhere, samplesRejected, groups, groupsRejected, groupsRan,
	decisions, ignored, plans, plansAgreed, publications, alarms, stepAudits, stepVetoes, findings, graphReplays, graphSeconds, graphChanges, graphRejected, graphSamples,
	ginTrips, ginCounters, ginElsewhere, ginSeconds, ginChanges, ginRejected, communicators, omitted, buckets, speedUp,
	commRanks, commJoined, commEpoch, commPlan, commHosts, commAgreed, commSpeedUp, commAlarm, commState}
