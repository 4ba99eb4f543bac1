package config

import (
	"fmt"
	"path/filepath"
	"time"

	"dynamiccl/agents"
	"dynamiccl/models"
	"dynamiccl/nccltuner"
	"dynamiccl/tuner"
)

// StoreNone as Config.Store keeps what is learned in memory only.
const StoreNone = "none"

// Config is everything that serve can be told. Field names and defaults: see fields.
type Config struct {
	Dir         string        // where ranks and daemon meet; mode 0700
	Store       string        // file of learned choices; StoreNone: memory only
	Learner     string        // one of models.Names
	Policy      string        // file of the policy that learner lstm runs; "": the shipped one
	Listen      string        // host:port of /metrics and /healthz; "": off
	ListenAny   bool          // allow Listen on an address that other machines reach
	LogLevel    string        // debug, info, warn, error
	LogFormat   string        // text, json
	Tick        time.Duration // how often rings are read and schedules are checked
	SampleEvery int           // epochs; power of two; 0: as the cost of sampling allows
	NoExplore   bool          // stored choices only
	Fixed       bool          // collectives that add up keep NCCL's own choice
	Reward      string        // one of tuner.Rewards: what a call is charged
	StepGuard   bool          // choices that make steps longer go
	Budget      float64       // share of time that exploration may lose
	Machine     string        // overrides the detected machine shape; "": detect
	GPUArch     string        // overrides the detected GPU architecture; "": detect
	Seed        uint64        // of the learners' random source
	Trace       string        // file that gets every watched call; "": none

	// UntilUnused ends the daemon with the last `dynamiccld run`. It is how a daemon was started and no setting: no file
	// and no variable may say it.
	UntilUnused bool
}

// Host is what defaults depend on, so that tests do not need root or a certain environment.
type Host struct {
	Getenv func(string) string
	EUID   int
}

// Default gives the configuration when nothing is set.
func Default(h Host) Config {
	dir := nccltuner.DefaultDirPath(h.Getenv, h.EUID) // DYNAMICCL_DIR itself is read with the other settings
	return Config{
		Dir: dir, Store: defaultStore(h, dir),
		Learner: models.DefaultLearner,
		Reward:  tuner.RewardCall.String(), StepGuard: true,
		LogLevel: "info", LogFormat: "text",
		Tick: 10 * time.Millisecond, Seed: 1, Budget: agents.DefaultExploreBudget,
	}
}

// defaultStore outlives a reboot, which the directory of shared files does not.
func defaultStore(h Host, dir string) string {
	if h.EUID == 0 {
		return "/var/lib/dynamiccl/store.db"
	}
	if base := h.Getenv("XDG_STATE_HOME"); filepath.IsAbs(base) {
		return filepath.Join(base, "dynamiccl", "store.db")
	}
	if home := h.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, ".local", "state", "dynamiccl", "store.db")
	}
	return filepath.Join(dir, nccltuner.StoreName)
}

// Paths are the configuration files that are looked up when none is named, the first that exists is read: a user's own
// file wins over the machine's.
func Paths(h Host) []string {
	var paths []string
	base := h.Getenv("XDG_CONFIG_HOME")
	if home := h.Getenv("HOME"); base == "" && home != "" {
		base = filepath.Join(home, ".config")
	}
	if filepath.IsAbs(base) {
		paths = append(paths, filepath.Join(base, "dynamiccl", "config.yaml"))
	}
	return append(paths, "/etc/dynamiccl/config.yaml")
}

// Validate checks what a single field cannot know of itself. Every error names the field and the remedy.
func (c Config) Validate() error {
	for _, f := range fields {
		if err := f.set(&c, f.get(c)); err != nil {
			return fmt.Errorf("%s: %w", f.key, err)
		}
	}
	return checkListen(c.Listen, c.ListenAny)
}
