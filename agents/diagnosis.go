package agents

// Diagnosis is what the pair of latencies says about a change.
type Diagnosis uint8

// Diagnoses, docs/design.md, decision 11.
const (
	DiagnosisNone            Diagnosis = iota
	DiagnosisBackendFallback           // a constant added at all sizes to both: proxy or backend fallback
	DiagnosisCongestion                // growth with bytes on both
	DiagnosisRemoteSide                // counter flat, signal up: remote side or receiver
	DiagnosisSlowRank                  // one rank alone late, again and again
	DiagnosisCPUContention             // latency in multiples of a scheduler quantum
	DiagnosisRecovered                 // costs fell back
	DiagnosisUnknown                   // a change that fits none of these
	DiagnosisSaturated                 // no change: more contexts of GIN move no more bytes (tuner/trip_load.go). No Diagnoser says so

	NumDiagnoses
)

var diagnosisNames = [...]string{"none", "backend-fallback", "congestion", "remote-side", "slow-rank", "cpu-contention", "recovered", "unknown", "saturated"}

func (d Diagnosis) String() string {
	if int(d) < len(diagnosisNames) {
		return diagnosisNames[d]
	}
	return "unknown"
}

// rise says that costs stand above what they were.
func (d Diagnosis) rise() bool {
	return d == DiagnosisBackendFallback || d == DiagnosisCongestion || d == DiagnosisRemoteSide || d == DiagnosisCPUContention
}
