package control

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// Bucket is one bucket as commands, JSON and metrics see it, from a daemon or from a store file. Its JSON keys are an
// interface: add, never rename.
type Bucket struct {
	Comm        string     `json:"comm,omitempty"` // "": from a store file
	Machine     string     `json:"machine,omitempty"`
	GPUArch     string     `json:"gpu_arch,omitempty"`
	NCCLVersion string     `json:"nccl_version,omitempty"`
	Ranks       int        `json:"ranks"`
	Nodes       int        `json:"nodes"`
	Transport   string     `json:"transport,omitempty"`
	Collective  string     `json:"collective"`
	MinBytes    uint64     `json:"min_bytes"`
	MaxBytes    uint64     `json:"max_bytes,omitempty"` // 0: no upper end
	Choice      string     `json:"choice"`
	DeviceLL    bool       `json:"device_kernel,omitempty"`  // Choice is NCCL's device kernel, and not the classic one of that name
	Numerics    string     `json:"numerics,omitempty"`       // the choice's class (actions.Numerics)
	Fixed       bool       `json:"fixed_numerics,omitempty"` // it adds up, and keeps NCCL's default for that
	Since       *time.Time `json:"since,omitempty"`          // perhaps before the communicator and the daemon came: of a stored choice
	SpeedUp     float64    `json:"speedup"`                  // NCCL's default over the choice; 1 when not known
	SpeedUpLow  float64    `json:"speedup_low"`
	SpeedUpHigh float64    `json:"speedup_high"`
	Stored      float64    `json:"stored_speedup,omitempty"`   // of the choice as it was stored, while that is all that is known of it
	Expected    float64    `json:"expected_speedup,omitempty"` // of the choice, by the learner, from all but its own calls; 0: not known
	ExpectedSD  float64    `json:"expected_sd,omitempty"`      // standard deviation of its logarithm
	Calls       uint64     `json:"calls"`
	Exploring   bool       `json:"exploring"`
	Reward      string     `json:"reward,omitempty"`  // "exposed": times are what calls add to their step; "": what they take
	Steps       *Steps     `json:"steps,omitempty"`   // of the program, with choices and without; nil: not compared (yet)
	Refused     []string   `json:"refused,omitempty"` // that are never tried: they hung their ranks or gave wrong elements when calibrate measured them
	Silent      []string   `json:"silent,omitempty"`  // that are hardly tried any more: no times came of their trials, or of too few calls
	Note        string     `json:"note,omitempty"`
	MostCTAs    int        `json:"most_ctas,omitempty"`      // of our kernels; 0: as many as there are choices of
	Beside      int        `json:"kernels_beside,omitempty"` // that may wait on a GPU beside one of these, where that is why
	Computes    bool       `json:"computes,omitempty"`       // or the program may compute beside these calls
	Diagnosis   string     `json:"diagnosis"`
	DiagnosedAt *time.Time `json:"diagnosed_at,omitempty"`
	// DiagnosedBefore: by an earlier daemon, or in an earlier communicator; costs have not changed since MeasuredAt.
	DiagnosedBefore bool       `json:"diagnosed_before,omitempty"`
	MeasuredAt      *time.Time `json:"measured_at,omitempty"` // the first call of a live daemon's bucket
	Counter         float64    `json:"cusum_counter"`         // fraction of the alarm threshold
	Signal          float64    `json:"cusum_signal"`
	Tried           []Tried    `json:"tried"`
	Ledger          *Ledger    `json:"ledger,omitempty"` // of a live daemon

	Bucket state.Bucket `json:"-"`
}

// Steps says how long a program's steps are with what was chosen for the communicator, beside those with NCCL's default.
type Steps struct {
	Pairs    int     `json:"pairs"`     // of blocks of steps, one of each
	LongerBy float64 `json:"longer_by"` // a share; negative: shorter
	Low      float64 `json:"low"`       // 95%
	High     float64 `json:"high"`
	Vetoed   bool    `json:"vetoed"` // NCCL's default is in force for that
}

// Ledger is what choosing was worth over the calls that were measured, against NCCL's default in the same condition.
type Ledger struct {
	Calls     uint64  `json:"calls"`      // held against the default
	DefaultNs float64 `json:"default_ns"` // what they would have taken with it
	SavedNs   float64 `json:"saved_ns"`   // by choices in force
	TrialNs   float64 `json:"trial_ns"`   // lost by trying others
	Trials    uint64  `json:"trials"`
}

// Tried is what one action cost.
type Tried struct {
	Action   string  `json:"action"`
	Calls    int     `json:"calls"`
	MeanNs   float64 `json:"mean_ns"`
	Spread   float64 `json:"spread"`             // standard deviation of the logarithm, hence about a fraction of the mean
	Numerics string  `json:"numerics,omitempty"` // its class; "": of a daemon that does not tell
}

// Finding is something that the daemon noticed.
type Finding struct {
	Comm       string    `json:"comm"`
	Collective string    `json:"collective"`
	MinBytes   uint64    `json:"min_bytes"`
	At         time.Time `json:"at"`
	Diagnosis  string    `json:"diagnosis"`
	Text       string    `json:"text"`
	AgoS       float64   `json:"ago_s"` // before this answer, which no clock that somebody sets changes
}

// Alarm is one of a size's detector, before anybody says what it means.
type Alarm struct {
	Comm       string  `json:"comm"`
	Collective string  `json:"collective"`
	MinBytes   uint64  `json:"min_bytes"`
	AgoS       float64 `json:"ago_s"` // as a Finding's
	Up         bool    `json:"up"`    // costs rose
	BySignal   bool    `json:"by_signal"`
	ByCounter  bool    `json:"by_counter"`
}

// CommID writes a communicator id as file names, flags and labels do.
func CommID(id tuner.CommID) string { return fmt.Sprintf("%016x", uint64(id)) }

// ParseCommID reads up to 16 hexadecimal digits, with or without 0x, and gives them as CommID writes them.
func ParseCommID(s string) (string, error) {
	digits := strings.TrimPrefix(strings.ToLower(s), "0x")
	v, err := strconv.ParseUint(digits, 16, 64)
	if err != nil || len(digits) > 16 {
		return "", fmt.Errorf("communicator %q is not 1 to 16 hexadecimal digits; `dynamiccld status` lists those that live", s)
	}
	return CommID(tuner.CommID(v)), nil
}

// instant turns an instant of the daemon's monotonic clock into wall time; nil for zero, which means never.
func instant(at, nowNs state.Ns, now time.Time) *time.Time {
	if at == 0 {
		return nil
	}
	t := now.Add(-time.Duration(nowNs - at)).UTC().Truncate(time.Second)
	return &t
}

// stored reads an instant of a store file.
func stored(at state.Ns, now time.Time) *time.Time {
	t := time.Unix(0, int64(at)).UTC().Truncate(time.Second)
	if at == 0 || t.After(now) {
		return nil
	}
	return &t
}

// finite keeps JSON writable: it has no NaN and no infinity.
func finite(v, otherwise float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return otherwise
	}
	return v
}

func bucketRange(b state.Bucket) (low, high uint64) {
	if low = 1 << b.Log2Bytes; b.Log2Bytes >= state.NumBuckets-1 {
		return low, 0
	}
	return low, low<<1 - 1
}

// FromView gives a live daemon's bucket. nowNs is the daemon's clock at the wall time now.
func FromView(v tuner.BucketView, nowNs state.Ns, now time.Time) Bucket {
	b := Bucket{
		Comm: CommID(v.Comm), Ranks: v.Shape.Ranks, Nodes: v.Shape.Nodes, Transport: v.Shape.Transport,
		Collective: v.Bucket.Collective.String(), Choice: v.Choice.String(), DeviceLL: v.DeviceLL, Since: instant(v.SinceNs, nowNs, now),
		SpeedUp: finite(v.SpeedUp, 1), SpeedUpLow: finite(v.SpeedUpLow, 1), SpeedUpHigh: finite(v.SpeedUpHigh, 1),
		Stored: finite(v.Stored, 0), Expected: finite(v.Expected, 0), ExpectedSD: finite(v.ExpectedSD, 0),
		Numerics: numerics(v.Choice, v.Bucket, v.Shape), Fixed: v.Fixed,
		Calls: v.Calls, Exploring: v.Exploring, Note: v.Note, MostCTAs: v.MostCTAs, Beside: v.Beside, Computes: v.Computes,
		Diagnosis: v.Diagnosis.String(), DiagnosedAt: instant(v.DiagnosisNs, nowNs, now),
		DiagnosedBefore: v.DiagnosedBefore, MeasuredAt: instant(v.MeasuredNs, nowNs, now),
		Counter: finite(v.CusumCounter, 0), Signal: finite(v.CusumSignal, 0),
		Tried: make([]Tried, 0, len(v.Choices)), Bucket: v.Bucket,
	}
	b.Refused = names(v.Refused)
	b.Silent = names(v.Silent)
	if v.Reward != tuner.RewardCall {
		b.Reward = v.Reward.String()
	}
	if v.Audit != nil {
		steps := Steps(*v.Audit)
		b.Steps = &steps
	}
	if l := v.Ledger; l.Calls > 0 {
		b.Ledger = &Ledger{l.Calls, finite(l.DefaultNs, 0), finite(l.SavedNs, 0), finite(l.TrialNs, 0), l.Trials}
	}
	b.MinBytes, b.MaxBytes = bucketRange(v.Bucket)
	for _, c := range v.Choices {
		b.Tried = append(b.Tried, tried(c.Action, c.Estimate, v.Bucket, v.Shape))
	}
	return b
}

// FromLearned gives a bucket of a store file, read at now. Instants that are yet to come are left out: the host's clock was ahead
// when they were written, and nobody knows by how much.
func FromLearned(l tuner.Learned, now time.Time) Bucket {
	k := l.Key
	b := Bucket{
		Machine: k.Machine, GPUArch: k.GPUArch, NCCLVersion: FormatNCCLVersion(k.NCCLVersion),
		Ranks: k.Shape.Ranks, Nodes: k.Shape.Nodes, Transport: k.Shape.Transport,
		Collective: k.Bucket.Collective.String(), Choice: l.Action.String(), Numerics: numerics(l.Action, k.Bucket, k.Shape),
		SpeedUp: 1, SpeedUpLow: 1, SpeedUpHigh: 1, Calls: l.Calls, Diagnosis: "none",
		Tried: make([]Tried, 0, len(l.Evidence)), Bucket: k.Bucket,
	}
	b.MinBytes, b.MaxBytes = bucketRange(k.Bucket)
	b.Refused = names(l.Refused)
	b.Since = stored(l.SinceNs, now)
	if b.DiagnosedAt = stored(l.DiagnosisNs, now); b.DiagnosedAt != nil {
		b.Diagnosis, b.DiagnosedBefore = l.Diagnosis.String(), true
	}
	if l.Calls == 0 {
		if b.Note = "from an import, not measured yet"; l.Action == actions.Default {
			b.Note = ""
		}
		return b
	}
	base, choice := l.Evidence[actions.Default], l.Evidence[l.Action]
	switch {
	case base.N > 1 && choice.N > 1 && base.MeanNs > 0 && choice.MeanNs > 0:
		b.SpeedUp, b.SpeedUpLow, b.SpeedUpHigh = ratio(base, choice)
	case l.CostNs > 0 && l.Default > 0:
		b.SpeedUp = finite(l.Default/l.CostNs, 1)
		b.SpeedUpLow, b.SpeedUpHigh = b.SpeedUp, b.SpeedUp
	}
	byAction := func(a, c actions.Action) int { return cmp.Compare(a.Word(), c.Word()) }
	for _, a := range slices.SortedFunc(maps.Keys(l.Evidence), byAction) {
		b.Tried = append(b.Tried, tried(a, l.Evidence[a], k.Bucket, k.Shape))
	}
	return b
}

func names(all []actions.Action) (names []string) {
	for _, a := range all {
		names = append(names, a.String())
	}
	return names
}

// ratio is base's cost over choice's with its 95% interval, a normal approximation on logarithms.
func ratio(base, choice tuner.Estimate) (mid, low, high float64) {
	mid = base.MeanNs / choice.MeanNs
	half := 1.96 * math.Sqrt(base.VarLog/float64(base.N)+choice.VarLog/float64(choice.N))
	return finite(mid, 1), finite(mid*math.Exp(-half), 1), finite(mid*math.Exp(half), 1)
}

func tried(a actions.Action, e tuner.Estimate, b state.Bucket, shape state.Shape) Tried {
	return Tried{a.String(), e.N, finite(e.MeanNs, 0), finite(math.Sqrt(max(e.VarLog, 0)), 0), numerics(a, b, shape)}
}

func numerics(a actions.Action, b state.Bucket, shape state.Shape) string {
	return string(a.Numerics(b.Collective, 1<<b.Log2Bytes, shape.Nodes > 1 && shape.Ranks > shape.Nodes))
}

func fromFinding(f tuner.Finding, nowNs state.Ns, now time.Time) Finding {
	at := now.Add(-time.Duration(nowNs - f.AtNs)).UTC().Truncate(time.Second)
	return Finding{CommID(f.Comm), f.Bucket.Collective.String(), 1 << f.Bucket.Log2Bytes, at, f.Diagnosis.String(), f.Text, agoS(f.AtNs, nowNs)}
}

func fromAlarm(a tuner.Alarmed, nowNs state.Ns) Alarm {
	return Alarm{CommID(a.Comm), a.Bucket.Collective.String(), 1 << a.Bucket.Log2Bytes, agoS(a.AtNs, nowNs), a.Up, a.BySignal, a.ByCounter}
}

// agoS is in seconds, to the millisecond.
func agoS(at, nowNs state.Ns) float64 { return math.Round(float64(nowNs-at)/1e6) / 1e3 }

// bucket finds the bucket again from its JSON.
func (b Bucket) bucket() (state.Bucket, error) {
	c, err := actions.ParseCollective(b.Collective)
	if err != nil {
		return state.Bucket{}, err
	}
	out, ok := state.BucketOf(c, b.MinBytes)
	if !ok {
		return out, fmt.Errorf("bucket of %d bytes", b.MinBytes)
	}
	return out, nil
}
