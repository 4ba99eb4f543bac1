package config

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"dynamiccl/models"
)

// user is a host without any file or variable of ours.
func user(env map[string]string) Host {
	return Host{Getenv: func(name string) string { return env[name] }, EUID: 1000}
}

func load(t *testing.T, yaml string, environ []string, args ...string) (Loaded, error) {
	t.Helper()
	h := user(map[string]string{"HOME": t.TempDir()})
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(flags, h)
	if err := flags.Parse(args); err != nil {
		return Loaded{}, err
	}
	s := Sources{Host: h, Env: environ, Flags: flags}
	if yaml != "" {
		s.File = filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(s.File, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Load(s)
}

func TestDefaultsAreValid(t *testing.T) {
	runtime := t.TempDir()
	for name, h := range map[string]Host{
		"root":   {Getenv: func(string) string { return "" }, EUID: 0},
		"user":   user(map[string]string{"HOME": "/home/u"}),
		"xdg":    user(map[string]string{"XDG_RUNTIME_DIR": runtime, "XDG_STATE_HOME": "/state"}),
		"wrong":  user(map[string]string{"XDG_RUNTIME_DIR": "run", "XDG_STATE_HOME": "state", "HOME": "home"}),
		"barren": user(nil),
	} {
		if err := Default(h).Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c := Default(user(map[string]string{"XDG_RUNTIME_DIR": runtime, "XDG_STATE_HOME": "/state"})); c.Dir != runtime+"/dynamiccl" || c.Store != "/state/dynamiccl/store.db" {
		t.Errorf("dir %s, store %s", c.Dir, c.Store)
	}
	if c := Default(user(nil)); c.Dir != "/tmp/dynamiccl-1000" || c.Store != "/tmp/dynamiccl-1000/store.db" {
		t.Errorf("dir %s, store %s", c.Dir, c.Store)
	}
}

func TestPrecedence(t *testing.T) {
	yaml := "# a comment\n---\ntick: 20ms\nlearner: ucb\nsample-every: 8\nno-explore: true\n"
	l, err := load(t, yaml, []string{"DYNAMICCL_TICK=30ms", "DYNAMICCL_LEARNER=default", "OTHER=1"}, "--tick", "40ms")
	if err != nil {
		t.Fatal(err)
	}
	c := l.Config
	if c.Tick != 40*time.Millisecond || c.Learner != "default" || c.SampleEvery != 8 || !c.NoExplore || c.LogLevel != "info" {
		t.Errorf("%+v", c)
	}
	for key, want := range map[string]string{"tick": "flag --tick", "learner": "environment variable DYNAMICCL_LEARNER",
		"sample-every": "configuration file " + l.File, "log-level": "default"} {
		if l.Origin[key] != want {
			t.Errorf("origin of %s is %q, want %q", key, l.Origin[key], want)
		}
	}
}

func TestEmptyEnvironmentIsUnset(t *testing.T) {
	l, err := load(t, "learner: ucb", []string{"DYNAMICCL_LEARNER="})
	if err != nil || l.Config.Learner != "ucb" {
		t.Errorf("%q, %v", l.Config.Learner, err)
	}
}

func TestFlagsOfEveryField(t *testing.T) {
	l, err := load(t, "", nil, "--dir", "x", "--store=none", "--learner=ucb", "--listen=9464", "--listen-any", "--log-level=debug", "--log-format=json",
		"--policy=p.dynp", "--explore-budget=12.5%", "--reward=exposed", "--step-guard=false", "--tick=1s", "--sample-every=2", "--no-explore", "--fixed-numerics", "--machine=8x H200", "--gpu-arch=sm_90", "--seed=18446744073709551615")
	if err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	want := Config{Dir: filepath.Join(wd, "x"), Store: "none", Learner: "ucb", Listen: "localhost:9464", ListenAny: true, LogLevel: "debug", LogFormat: "json",
		Tick: time.Second, SampleEvery: 2, NoExplore: true, Fixed: true, Policy: filepath.Join(wd, "p.dynp"), Budget: 0.125, Reward: "exposed", Machine: "8x H200", GPUArch: "sm_90", Seed: math.MaxUint64}
	if l.Config != want {
		t.Errorf("got  %+v\nwant %+v", l.Config, want)
	}
}

// TestErrors: every error names the source, the field and the remedy.
func TestErrors(t *testing.T) {
	for _, c := range []struct {
		name, yaml string
		env, args  []string
		want       []string
	}{
		{"mistyped key", "lerner: ucb", nil, nil, []string{"config.yaml", `"lerner"`, `did you mean "learner"`}},
		{"no key at all", "foo: 1", nil, nil, []string{`unknown key "foo"; ` + "`dynamiccld serve --print-config`"}},
		{"list", "tick: [1, 2]", nil, nil, []string{"tick: holds a list; give a single value"}},
		{"underscore", "log_level: debug", nil, nil, []string{`did you mean "log-level"`}},
		{"nested", "log:\n  level: debug", nil, nil, []string{`"log.level"`, `did you mean "log-level"`}},
		{"list", "tick: [1, 2]", nil, nil, []string{"config.yaml", "tick", "single value"}},
		{"map under key", "tick: {}", nil, nil, []string{"tick", "single value"}},
		{"null", "tick:", nil, nil, []string{"tick", "no value"}},
		{"NaN", "tick: .nan", nil, nil, []string{"tick", "NaN", "10ms"}},
		{"infinite", "tick: .inf", nil, nil, []string{"tick", "10ms"}},
		{"number without unit", "tick: 10", nil, nil, []string{"tick", "unit"}},
		{"negative", "tick: -5ms", nil, nil, []string{"tick", "out of range", "1ms"}},
		{"overflow", "tick: 999999999999h", nil, nil, []string{"tick"}},
		{"not YAML", "\t: : x", nil, nil, []string{"config.yaml", "print-config"}},
		{"scalar file", "hello", nil, nil, []string{"config.yaml"}},
		{"twice", "tick: 1ms\ntick: 2ms", nil, nil, []string{"config.yaml", "tick"}},
		{"two documents", "---\ntick: 1ms\n---\nseed: 2\n", nil, nil, []string{"config.yaml", "line 3", "document"}},
		{"binary", "\x00\x01\xff", nil, nil, []string{"config.yaml"}},
		{"too large", "# " + strings.Repeat("x", maxFileBytes), nil, nil, []string{"larger than"}},
		{"no power of two", "sample-every: 3", nil, nil, []string{"sample-every", "power of two"}},
		{"zero", "sample-every: 0", nil, nil, []string{"sample-every", "power of two"}},
		{"learner", "", []string{"DYNAMICCL_LEARNER=lsmt"}, nil, []string{"DYNAMICCL_LEARNER", "learner", "one of " + strings.Join(models.Names(), ", ")}},
		{"relative policy", "policy: x.dynp", nil, nil, []string{"policy", "relative"}},
		{"unknown reward", "reward: wage", nil, nil, []string{"reward", "wage", "call, exposed"}},
		{"whole budget", "explore-budget: 1", nil, nil, []string{"explore-budget", "between 0% and 50%", "1%"}},
		{"negative budget", "explore-budget: -1%", nil, nil, []string{"explore-budget", "out of range"}},
		{"no budget", "explore-budget: .nan", nil, nil, []string{"explore-budget", "1%"}},
		{"budget in words", "", nil, []string{"--explore-budget=%"}, []string{"explore-budget", "1%"}},
		{"bool", "", []string{"DYNAMICCL_NO_EXPLORE=maybe"}, nil, []string{"DYNAMICCL_NO_EXPLORE", "true nor false"}},
		{"seed", "seed: 1.5", nil, nil, []string{"seed", "whole number"}},
		{"relative in file", "dir: run", nil, nil, []string{"dir", "relative", "absolute"}},
		{"relative in environment", "", []string{"DYNAMICCL_STORE=x.db"}, nil, []string{"DYNAMICCL_STORE", "relative"}},
		{"empty dir", "", nil, []string{"--dir="}, []string{"dir", "empty"}},
		{"machine", "machine: \"a\\nb\"", nil, nil, []string{"machine", "printable"}},
		{"all addresses", "", nil, []string{"--listen=0.0.0.0:9464"}, []string{"flag --listen", "--listen-any"}},
		{"other address", "listen: 10.0.0.1:9464", nil, nil, []string{"config.yaml", "listen", "--listen-any"}},
		{"name", "listen: example.com:9464", nil, nil, []string{"listen", "--listen-any"}},
		{"port", "listen: localhost:http", nil, nil, []string{"listen", "port"}},
		{"colons", "listen: '::1:80'", nil, nil, []string{"listen", "HOST:PORT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.yaml, c.env, c.args...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
		})
	}
}

// A daemon that run starts has another working directory, and did not find the file that run had read.
func TestFileOfTheEnvironmentIsAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("c.yaml", []byte("seed: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(Sources{Host: user(map[string]string{"DYNAMICCL_CONFIG": "c.yaml"})}); err == nil || err.Error() != `environment variable DYNAMICCL_CONFIG: path "c.yaml" is relative; give an absolute path` {
		t.Errorf("%v", err)
	}
	if l, err := Load(Sources{Host: user(nil), File: "c.yaml"}); err != nil || l.Config.Seed != 7 {
		t.Errorf("of the flag: %d, %v", l.Config.Seed, err)
	}
}

// A pipe in the place of the file says what it is, and is waited for by nobody.
func TestFileIsAPipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	loaded := make(chan error, 1)
	go func() {
		_, err := Load(Sources{Host: user(nil), File: path})
		loaded <- err
	}()
	select {
	case err := <-loaded:
		if err == nil || !strings.Contains(err.Error(), path+": a pipe that nobody writes into") {
			t.Errorf("%v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a writer")
	}
}

// A HOME that was handed on, as by sudo or to a container, has no file of this user's: that costs no program its tuning. A file that is
// there and cannot be read does, and so do folders of one's own: what it says may be a promise.
func TestHomeOfSomebodyElse(t *testing.T) {
	l, err := Load(Sources{Host: user(map[string]string{"HOME": "/dev/null"})})
	if err != nil || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "/dev/null is another user's, or no folder; set HOME") {
		t.Errorf("%v, %q", err, l.Warnings)
	}
	home := t.TempDir()
	path := filepath.Join(home, ".config", "dynamiccl", "config.yaml")
	if at := outOfReach(path, unix.EACCES, os.Geteuid()+1); at != home {
		t.Errorf("somebody else's folder: %q, want %q", at, home)
	}
	if at := outOfReach(path, unix.EACCES, os.Geteuid()); at != "" {
		t.Errorf("one's own folder: %q", at)
	}
	if at := outOfReach(path, unix.EIO, os.Geteuid()+1); at != "" {
		t.Errorf("a disk that fails: %q", at)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0); err != nil {
		t.Fatal(err)
	}
	if at := outOfReach(path, unix.EACCES, os.Geteuid()+1); at != "" {
		t.Errorf("a file that is there: %q", at)
	}
	if _, err := Load(Sources{Host: user(nil), Env: nil, File: "/dev/null/config.yaml"}); err == nil {
		t.Error("a file that was named is passed over")
	}
}

func TestShares(t *testing.T) {
	for text, want := range map[string]float64{"1%": 0.01, "0.01": 0.01, "0": 0, "0%": 0, "50%": 0.5, "0.5": 0.5, " 7 %": 0.07, "1e-3": 0.001, "1e-12": 0} {
		got, err := ParseShare(text)
		if err != nil || got != want {
			t.Errorf("%q: %g, %v; want %g", text, got, err, want)
		}
		if again, err := ParseShare(FormatShare(got)); err != nil || again != got {
			t.Errorf("%q is written %s, which is %g, %v", text, FormatShare(got), again, err)
		}
	}
}

func TestListen(t *testing.T) {
	for in, want := range map[string]string{"": "", "9464": "localhost:9464", ":9464": "localhost:9464", "127.0.0.1:1": "127.0.0.1:1", "[::1]:0": "[::1]:0"} {
		l, err := load(t, "", nil, "--listen="+in)
		if err != nil || l.Config.Listen != want {
			t.Errorf("%q: %q, %v; want %q", in, l.Config.Listen, err, want)
		}
	}
	l, err := load(t, "", nil, "--listen=0.0.0.0:9464", "--listen-any")
	if err != nil || l.Config.Listen != "0.0.0.0:9464" {
		t.Errorf("%q, %v", l.Config.Listen, err)
	}
}

func TestFileLookup(t *testing.T) {
	base := t.TempDir()
	h := user(map[string]string{"XDG_CONFIG_HOME": base})
	if l, err := Load(Sources{Host: h}); err != nil || l.File != "" {
		t.Errorf("no file: %q, %v", l.File, err)
	}
	path := filepath.Join(base, "dynamiccl", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("seed: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := Load(Sources{Host: h}); err != nil || l.File != path || l.Config.Seed != 7 {
		t.Errorf("own file: %q, %v", l.File, err)
	}
	missing := user(map[string]string{"DYNAMICCL_CONFIG": filepath.Join(base, "no.yaml")})
	if _, err := Load(Sources{Host: missing}); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("a named file that is missing: %v", err)
	}
}

func TestUnknownVariableIsAWarning(t *testing.T) {
	l, err := load(t, "", []string{"DYNAMICCL_LERNER=ucb", "DYNAMICCL_CHAIN_PROFILER=/x.so", "DYNAMICCL_NO_GRAPHS=1", "DYNAMICCL_KERNEL_EVENTS=1"})
	if err != nil || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "DYNAMICCL_LEARNER") {
		t.Errorf("%q, %v", l.Warnings, err)
	}
	l, err = load(t, "", []string{"DYNAMICCL_NO_KERNEL=1", "DYNAMICCL_CARRIER_GBS=50"})
	if err != nil || len(l.Warnings) != 1 || !strings.Contains(l.Warnings[0], "did you mean DYNAMICCL_NO_KERNELS?") {
		t.Errorf("%q, %v", l.Warnings, err)
	}
}

// TestEveryDocumentedVariableIsKnown: a daemon that is started where ranks are must not call their settings mistyped.
func TestEveryDocumentedVariableIsKnown(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(EnvPrefix+"[A-Z_]*[A-Z]").FindAllString(string(text), -1)
	if len(all) < 15 {
		t.Fatalf("only %v found", all)
	}
	for _, name := range all {
		if l, err := load(t, "", []string{name + "="}); err != nil || len(l.Warnings) > 0 {
			t.Errorf("%s: %q, %v", name, l.Warnings, err)
		}
	}
}

// TestPrintedConfigLoads: what --print-config writes means the same again.
func TestPrintedConfigLoads(t *testing.T) {
	first, err := load(t, "", nil, "--dir=/tmp/a \"b\" \\c", "--machine=8x H200: 'x' #1", "--tick=15ms", "--listen=9464", "--no-explore", "--explore-budget=0.0333333333333", "--seed=3")
	if err != nil {
		t.Fatal(err)
	}
	second, err := load(t, first.YAML(), nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, first.YAML())
	}
	if first.Config != second.Config {
		t.Errorf("got  %+v\nwant %+v", second.Config, first.Config)
	}
}

func TestValidateRefusesWhatNoSourceCanGive(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"tick":         func(c *Config) { c.Tick = -time.Second },
		"sample-every": func(c *Config) { c.SampleEvery = -4 },
		"dir":          func(c *Config) { c.Dir = "a\x00b" },
		"learner":      func(c *Config) { c.Learner = "" },
		"gpu-arch":     func(c *Config) { c.GPUArch = strings.Repeat("x", 1000) },
		"listen":       func(c *Config) { c.Listen = ":80:" },
	} {
		c := Default(user(nil))
		spoil(&c)
		if err := c.Validate(); err == nil || !strings.HasPrefix(err.Error(), name+":") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReload(t *testing.T) {
	old := Default(user(nil))
	next := old
	next.Tick, next.LogLevel, next.NoExplore, next.SampleEvery = time.Second, "debug", true, 2
	next.Dir, next.Learner, next.Policy, next.Store, next.Budget = "/elsewhere", "ucb", "/p.dynp", StoreNone, 0.2
	merged, live, restart := Reload(old, next)
	if got := keys(live); got != "log-level tick sample-every no-explore explore-budget" {
		t.Errorf("live: %s", got)
	}
	if got := keys(restart); got != "dir store learner policy" {
		t.Errorf("restart: %s", got)
	}
	want := next
	want.Dir, want.Learner, want.Policy, want.Store = old.Dir, old.Learner, old.Policy, old.Store
	if merged != want {
		t.Errorf("got  %+v\nwant %+v", merged, want)
	}
	if _, live, restart := Reload(old, old); len(live)+len(restart) != 0 {
		t.Errorf("no change: %v, %v", live, restart)
	}
}

func keys(changes []Change) string {
	var all []string
	for _, c := range changes {
		all = append(all, c.Key)
	}
	return strings.Join(all, " ")
}

// FuzzDecode: any file gives an error or a valid configuration, and never anything else.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "tick: 10ms", "tick: .nan", "tick: -1ms", "a: &x [*x]", "? [a]\n: b", "seed: 0x10", "listen: 1:2:3", "{", "- a", "<<: *a",
		"&a a: b", "no-explore: yes\nlisten-any: on", "tick: !!int 3", "dir: /\nstore: none", "machine: \"\\u2028\"", "a: &a [x]\nb: [*a,*a]", "1: 2", "~: 1"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l := Loaded{Config: Default(user(nil)), Origin: map[string]string{}}
		if l.decode("fuzz.yaml", data) != nil || l.Config.Validate() != nil {
			return
		}
		c := l.Config
		if c.Tick < minTick || c.Tick > maxTick || c.SampleEvery < 0 || c.SampleEvery&(c.SampleEvery-1) != 0 || !filepath.IsAbs(c.Dir) {
			t.Errorf("%q gives %+v", data, c)
		}
		again := Loaded{Config: Default(user(nil)), Origin: map[string]string{}}
		if err := again.decode("again.yaml", []byte(l.YAML())); err != nil || again.Config != c {
			t.Errorf("%q: printed and read again: %v\n%s", data, err, l.YAML())
		}
	})
}
