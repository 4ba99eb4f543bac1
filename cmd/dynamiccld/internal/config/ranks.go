package config

import (
	"fmt"
	"strconv"
)

// rankEnv are variables that ranks alone read, and who reads them in C takes what is no such value for none (docs/settings.md).
// Invariant: each is in otherEnv.
var rankEnv = map[string]struct {
	want string
	is   func(value string) bool
}{
	NoGraphsVariable:                {"true or false", isSwitch},
	EnvPrefix + "NEW_GRAPHS":        {"true or false", isSwitch},
	KernelEventsVariable:            {"true or false", isSwitch},
	EnvPrefix + "NO_KERNELS":        {"true or false", isSwitch},
	EnvPrefix + "QUIET":             {"true or false", isSwitch},
	EnvPrefix + "NO_DLSYM":          {"0 or 1", isZeroOrOne},
	EnvPrefix + "HOSTS":             {"true or false", isSwitch},
	EnvPrefix + "GIN":               {"0 or 1", isZeroOrOne},
	EnvPrefix + "COUNT_CALLS":       {"0 or 1", isZeroOrOne},
	EnvPrefix + "SCRATCH_MIB":       {"1 to 4096", between(1, 4096)},
	EnvPrefix + "SCRATCH_TOTAL_MIB": {"1 to 65536", between(1, 65536)},
	EnvPrefix + "LATE_S":            {"0 to 86400", between(0, 86400)},
	EnvPrefix + "GIN_WAIT_S":        {"1 to 3600", between(1, 3600)},
	EnvPrefix + "GIN_PEER_WAIT_S":   {"1 to 604800", between(1, 604800)},
	EnvPrefix + "SOCKET_THREADS":    {"0 to 8", between(0, 8)},
}

func isSwitch(value string) bool {
	_, err := strconv.ParseBool(value)
	return err == nil
}

func isZeroOrOne(value string) bool { return value == "0" || value == "1" }

func between(least, most uint64) func(string) bool {
	return func(value string) bool {
		n, err := strconv.ParseUint(value, 10, 64)
		return err == nil && n >= least && n <= most
	}
}

// rankWarning is empty where ranks read the value as it is meant.
func rankWarning(name, value string) string {
	rule, ok := rankEnv[name]
	if !ok || value == "" || rule.is(value) {
		return ""
	}
	return fmt.Sprintf("environment variable %s is %q, and ranks want %s", name, value, rule.want)
}
