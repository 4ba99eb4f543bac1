package doctor

import (
	"context"

	"dynamiccl/cmd/dynamiccld/internal/control"
)

// Levels of a finding.
const (
	OK   = "ok"
	Warn = "warn" // works, but not as well as it could, or probably not as meant
	Fail = "fail" // nothing is tuned like this
)

// Finding is what one check says. Its JSON keys are an interface: add, never rename.
type Finding struct {
	Check  string `json:"check"`
	Level  string `json:"level"`
	Text   string `json:"text"`
	Remedy string `json:"remedy,omitempty"` // "" for ok
}

// Host is what the checks look at.
type Host struct {
	Getenv         func(string) string
	EUID           int
	Root           string // prefix of /etc, /proc and the system's library directories; "" on a real host
	Dir            string
	StorePath      string
	TracePath      string   // "": none
	ConfigErr      error    // what is wrong with the settings; nil: nothing
	ConfigWarnings []string // what was probably not meant
	Version        string
	ABI            int
	Client         *control.Client
}

// Report collects findings in the order of the checks.
type Report struct {
	Findings []Finding `json:"findings"`
	OK       int       `json:"ok"`
	Warnings int       `json:"warnings"`
	Failures int       `json:"failures"`
}

func (r *Report) ok(check, text string) { r.add(Finding{check, OK, text, ""}) }
func (r *Report) warn(check, text, remedy string) {
	r.add(Finding{check, Warn, text, remedy})
}
func (r *Report) fail(check, text, remedy string) {
	r.add(Finding{check, Fail, text, remedy})
}

func (r *Report) add(f Finding) {
	r.Findings = append(r.Findings, f)
	switch f.Level {
	case OK:
		r.OK++
	case Warn:
		r.Warnings++
	default:
		r.Failures++
	}
}

// Run makes all checks.
func Run(ctx context.Context, h Host) Report {
	r := Report{Findings: []Finding{}}
	if h.ConfigErr != nil {
		r.fail("settings", h.ConfigErr.Error(), "correct the setting; the checks below are made without it")
	} else {
		r.ok("settings", "settings load")
	}
	for _, text := range h.ConfigWarnings {
		r.warn("settings", text, "correct it, or unset it; nothing reads it as it is")
	}
	env := environment(h)
	checkPlugins(&r, h, env, checkNCCL(&r, h))
	checkCarrier(&r, h, env)
	checkForced(&r, env)
	usable := checkDirectory(&r, h, env)
	daemon := checkDaemon(ctx, &r, h)
	var pids []uint32
	if usable {
		pids = checkFiles(&r, h, daemon)
	}
	checkProcesses(&r, h, pids)
	checkStore(&r, h, daemon)
	return r
}
