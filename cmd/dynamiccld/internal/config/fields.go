package config

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"dynamiccl/models"
	"dynamiccl/tuner"
)

// Bounds: below a millisecond the daemon would be busy with waking up, above ten seconds a ring of 65,536 samples
// overflows at 10,000 collectives a second.
const (
	minTick        = time.Millisecond
	maxTick        = 10 * time.Second
	maxSampleEvery = 1 << 20
	maxNameBytes   = 128
	maxShare       = 0.5
)

// field is one setting: its key is the flag, the key in the file, and (upper case, DYNAMICCL_) the environment variable.
type field struct {
	key   string
	kind  string // as the help shows it; "bool" needs no value as a flag
	usage string
	live  bool // may change on SIGHUP
	set   func(*Config, string) error
	get   func(Config) string
}

var fields = []field{
	{"dir", "path", "directory where ranks and daemon meet (mode 0700, owned by you)", false,
		func(c *Config, s string) (err error) { c.Dir, err = absolute(s); return },
		func(c Config) string { return c.Dir }},
	{"store", "path", "file of learned choices; none: memory only", false,
		func(c *Config, s string) (err error) {
			if c.Store = StoreNone; s != StoreNone {
				c.Store, err = absolute(s)
			}
			return
		},
		func(c Config) string { return c.Store }},
	{"learner", "name", "who chooses: " + strings.Join(models.Names(), ", ") + "; default only measures", false,
		func(c *Config, s string) (err error) { c.Learner, err = oneOf(s, models.Names()...); return },
		func(c Config) string { return c.Learner }},
	{"policy", "path", "policy file of 'dynamiccld train' that learner lstm runs; empty: the one in this program", false,
		func(c *Config, s string) (err error) {
			if c.Policy = s; s != "" {
				c.Policy, err = absolute(s)
			}
			return
		},
		func(c Config) string { return c.Policy }},
	{"listen", "[host:]port", "serve /metrics (Prometheus), /healthz and /v1 (JSON) over HTTP; empty: off; a port alone is localhost", false,
		func(c *Config, s string) (err error) { c.Listen, err = normalListen(s); return },
		func(c Config) string { return c.Listen }},
	{"listen-any", "bool", "allow --listen on an address that other machines can reach", false,
		func(c *Config, s string) (err error) { c.ListenAny, err = boolean(s); return },
		func(c Config) string { return strconv.FormatBool(c.ListenAny) }},
	{"log-level", "level", "debug, info, warn or error", true,
		func(c *Config, s string) (err error) {
			c.LogLevel, err = oneOf(s, "debug", "info", "warn", "error")
			return
		},
		func(c Config) string { return c.LogLevel }},
	{"log-format", "format", "text or json", false,
		func(c *Config, s string) (err error) { c.LogFormat, err = oneOf(s, "text", "json"); return },
		func(c Config) string { return c.LogFormat }},
	{"tick", "duration", "how often samples are read, 1ms to 10s", true,
		func(c *Config, s string) (err error) { c.Tick, err = tick(s); return },
		func(c Config) string { return c.Tick.String() }},
	{"sample-every", "epochs", "measure one epoch in this many (power of two) once a choice is settled; auto: so that it costs less than half a percent", true,
		func(c *Config, s string) (err error) { c.SampleEvery, err = sampleEvery(s); return },
		func(c Config) string {
			if c.SampleEvery == 0 {
				return automatic
			}
			return strconv.Itoa(c.SampleEvery)
		}},
	{"no-explore", "bool", "use stored choices only, try nothing new", true,
		func(c *Config, s string) (err error) { c.NoExplore, err = boolean(s); return },
		func(c Config) string { return strconv.FormatBool(c.NoExplore) }},
	{"fixed-numerics", "bool", "results stay NCCL's own to the last bit: AllReduce, ReduceScatter and Reduce keep NCCL's choice", false,
		func(c *Config, s string) (err error) { c.Fixed, err = boolean(s); return },
		func(c Config) string { return strconv.FormatBool(c.Fixed) }},
	{"reward", "name", "what a call is charged: call, the time it takes, or exposed, what it adds to the step of the program around it", false,
		func(c *Config, s string) (err error) { c.Reward, err = oneOf(s, tuner.Rewards()...); return },
		func(c Config) string { return c.Reward }},
	{"step-guard", "bool", "compare the program's steps with NCCL's default now and then, and go back to it where choices make them longer; with --reward call", false,
		func(c *Config, s string) (err error) { c.StepGuard, err = boolean(s); return },
		func(c Config) string { return strconv.FormatBool(c.StepGuard) }},
	{"explore-budget", "share", "share of time that exploration may lose, 0% to 50%", true,
		func(c *Config, s string) (err error) { c.Budget, err = ParseShare(s); return },
		func(c Config) string { return FormatShare(c.Budget) }},
	{"machine", "name", "machine shape that choices are stored under; empty: detected", false,
		func(c *Config, s string) (err error) { c.Machine, err = Label(s); return },
		func(c Config) string { return c.Machine }},
	{"gpu-arch", "name", "GPU architecture that choices are stored under; empty: detected", false,
		func(c *Config, s string) (err error) { c.GPUArch, err = Label(s); return },
		func(c Config) string { return c.GPUArch }},
	{"trace", "path", "file to which every watched call, and every put over GIN, is appended, as CSV; empty: none", false,
		func(c *Config, s string) (err error) {
			if c.Trace = s; s != "" {
				c.Trace, err = absolute(s)
			}
			return
		},
		func(c Config) string { return c.Trace }},
	{"seed", "number", "seed of the learners' random source", false,
		func(c *Config, s string) (err error) { c.Seed, err = seed(s); return },
		func(c Config) string { return strconv.FormatUint(c.Seed, 10) }},
}

func fieldOf(key string) (field, bool) {
	i := slices.IndexFunc(fields, func(f field) bool { return f.key == key })
	if i < 0 {
		return field{}, false
	}
	return fields[i], true
}

// env is the field's environment variable.
func (f field) env() string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(f.key, "-", "_"))
}

func absolute(s string) (string, error) {
	switch {
	case s == "":
		return s, errors.New("is empty; give a path, or leave the setting out for its default")
	case strings.ContainsRune(s, 0):
		return s, errors.New("holds a zero byte; give a path")
	}
	path, err := filepath.Abs(s)
	if err != nil {
		return s, fmt.Errorf("path %q: %w; give an absolute path", s, err)
	}
	return path, nil
}

func oneOf(s string, names ...string) (string, error) {
	if slices.Contains(names, s) {
		return s, nil
	}
	return s, fmt.Errorf("%q is not known; one of %s", s, strings.Join(names, ", "))
}

func boolean(s string) (bool, error) {
	v, err := strconv.ParseBool(s)
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", s)
	}
	return v, nil
}

func tick(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is not a duration; write a number with a unit, like 10ms", s)
	case d < minTick || d > maxTick:
		return d, fmt.Errorf("%v is out of range; between %v and %v", d, minTick, maxTick)
	}
	return d, nil
}

const automatic = "auto"

func sampleEvery(s string) (int, error) {
	if s == automatic {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err != nil || n == 0 || n > maxSampleEvery || n&(n-1) != 0 {
		return 0, fmt.Errorf("%q is neither auto nor a power of two from 1 to %d; 1 measures every epoch", s, maxSampleEvery)
	}
	return int(n), nil
}

// ParseShare reads a share of time: "1%" or "0.01". Finer than a millionth of a percent it is rounded, so that what
// FormatShare writes means the same again.
func ParseShare(s string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	switch {
	case err != nil || math.IsNaN(v):
		return 0, fmt.Errorf("%q is no share; write it like 1%% or 0.01", s)
	case v < 0 || v > maxShare:
		return 0, fmt.Errorf("%q is out of range; between 0%% and %s, written like 1%% or 0.01", s, FormatShare(maxShare))
	}
	return math.Round(v*1e8) / 1e8, nil
}

// FormatShare writes a share in percent.
func FormatShare(share float64) string { return strconv.FormatFloat(100*share, 'g', 9, 64) + "%" }

func seed(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a whole number from 0 to 2^64-1", s)
	}
	return n, nil
}

// Label refuses a name of a machine or GPU architecture that is not printable: these are keys in the store and values of metrics.
func Label(s string) (string, error) {
	if len(s) > maxNameBytes {
		return s, fmt.Errorf("is %d bytes long; at most %d", len(s), maxNameBytes)
	}
	for _, r := range s {
		if r < ' ' || r > '~' {
			return s, fmt.Errorf("%q holds %q; use printable ASCII", s, r)
		}
	}
	return s, nil
}
