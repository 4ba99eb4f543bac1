package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	koanfyaml "github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// EnvPrefix begins every environment variable of ours.
const EnvPrefix = "DYNAMICCL_"

// maxFileBytes bounds a configuration file: 16 settings need less than two kilobytes.
const maxFileBytes = 64 << 10

// Switches that the plugin reads (nccltuner/plugin/capture.c).
const (
	NoGraphsVariable     = EnvPrefix + "NO_GRAPHS"     // the program promises to capture no CUDA graphs
	KernelEventsVariable = EnvPrefix + "KERNEL_EVENTS" // NCCL times its kernels
)

// SwitchedOn says that a switch of the environment is on; what is no switch's value is off.
func SwitchedOn(getenv func(string) string, name string) bool {
	on, err := strconv.ParseBool(getenv(name))
	return on && err == nil
}

// otherEnv are variables of ours that are not settings of the daemon; ranks read most of them (docs/settings.md). Those of the carrier,
// which develops, begin with carrierPrefix.
var otherEnv = []string{EnvPrefix + "CONFIG", EnvPrefix + "CHAIN_PROFILER", EnvPrefix + "RUN", NoGraphsVariable, KernelEventsVariable,
	EnvPrefix + "NO_KERNELS", EnvPrefix + "NEW_GRAPHS", EnvPrefix + "NO_DLSYM", EnvPrefix + "KERNELS", EnvPrefix + "SCRATCH_MIB", EnvPrefix + "SCRATCH_TOTAL_MIB", EnvPrefix + "LATE_S", EnvPrefix + "COUNT_CALLS",
	EnvPrefix + "GIN", EnvPrefix + "GIN_NET", EnvPrefix + "GIN_WAIT_S", EnvPrefix + "GIN_PEER_WAIT_S", EnvPrefix + "GIN_KERNELS", EnvPrefix + "SOCKET_THREADS", EnvPrefix + "HOSTS",
	EnvPrefix + "QUIET"}

const carrierPrefix = EnvPrefix + "CARRIER"

func isOther(name string) bool {
	return slices.Contains(otherEnv, name) || strings.HasPrefix(name, carrierPrefix)
}

// Sources says where Load looks.
type Sources struct {
	Host  Host
	Env   []string       // as os.Environ gives it
	Flags *pflag.FlagSet // with the flags of AddFlags; nil: none
	File  string         // named by the user and hence must exist; "": DYNAMICCL_CONFIG, else the first of Paths
}

// Loaded is a configuration and where each of its settings comes from.
type Loaded struct {
	Config   Config
	File     string            // that was read; "": none
	Origin   map[string]string // by key: "default", "file ...", "environment ...", "flag ..."
	Warnings []string          // nothing wrong with the settings, but probably not what was meant
}

// Load reads file, environment and flags over the defaults, each over the one before. With an error it gives the first
// thing that is wrong, and a configuration that has everything else in it.
func Load(s Sources) (Loaded, error) {
	l := Loaded{Config: Default(s.Host), Origin: map[string]string{}}
	for _, f := range fields {
		l.Origin[f.key] = "default"
	}
	for _, err := range []error{l.loadFile(s), l.loadEnv(s.Env), l.loadFlags(s.Flags)} {
		if err != nil {
			return l, err
		}
	}
	if err := l.Config.Validate(); err != nil {
		key, _, _ := strings.Cut(err.Error(), ":")
		return l, fmt.Errorf("%s: %w", l.Origin[key], err)
	}
	return l, nil
}

func (l *Loaded) loadFlags(flags *pflag.FlagSet) error {
	if flags == nil {
		return nil
	}
	k := koanf.New(".")
	if err := k.Load(posflag.ProviderWithValue(flags, ".", nil, onlySettings), nil); err != nil {
		return fmt.Errorf("flags: %w", err)
	}
	return l.apply(k, true, func(key string) string { return "flag --" + key })
}

// onlySettings leaves out flags of cobra's and of single commands.
func onlySettings(key, value string) (string, any) {
	if _, ok := fieldOf(key); !ok {
		return "", nil
	}
	return key, value
}

func (l *Loaded) loadFile(s Sources) error {
	path, named := s.File, s.File != ""
	if !named {
		if path = s.Host.Getenv(EnvPrefix + "CONFIG"); path != "" {
			named = true
			if !filepath.IsAbs(path) {
				return fmt.Errorf("environment variable %sCONFIG: %w", EnvPrefix, relative(path))
			}
		}
	}
	candidates := []string{path}
	if !named {
		candidates = Paths(s.Host)
	}
	for _, path := range candidates {
		data, err := readBounded(path)
		if errors.Is(err, fs.ErrNotExist) && !named {
			continue
		}
		if at := outOfReach(path, err, s.Host.EUID); at != "" && !named {
			l.Warnings = append(l.Warnings, fmt.Sprintf("configuration file %s is not looked for: %s is another user's, or no folder; set HOME or XDG_CONFIG_HOME, which name it, to your own", path, at))
			continue
		}
		if err != nil {
			return fmt.Errorf("configuration file %s: %w; fix it, or name another with %sCONFIG (serve: --config)", path, err, EnvPrefix)
		}
		l.File = path
		return l.decode(path, data)
	}
	return nil
}

// outOfReach is what keeps a file from being opened that cannot be this user's: a folder of somebody else who lets nobody in, or what is no
// folder, as where sudo, srun or a container hands HOME on; "": the file may be theirs.
func outOfReach(path string, why error, euid int) string {
	if !errors.Is(why, fs.ErrPermission) && !errors.Is(why, unix.ENOTDIR) {
		return ""
	}
	if _, err := os.Lstat(path); err == nil {
		return "" // it is there, and its own mode that keeps it
	}
	for at := filepath.Dir(path); ; at = filepath.Dir(at) {
		var stat unix.Stat_t
		if unix.Stat(at, &stat) == nil {
			if stat.Mode&unix.S_IFMT == unix.S_IFDIR && int(stat.Uid) == euid {
				return ""
			}
			return at
		}
		if at == filepath.Dir(at) {
			return ""
		}
	}
}

func readBounded(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe that nobody writes into ends at once
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(data) > maxFileBytes {
		err = fmt.Errorf("larger than %d bytes", maxFileBytes)
	}
	if info, bad := f.Stat(); err == nil && len(data) == 0 && bad == nil && info.Mode()&fs.ModeNamedPipe != 0 {
		err = errors.New("a pipe that nobody writes into")
	}
	return data, err
}

// bytesProvider hands koanf what readBounded read.
type bytesProvider []byte

func (b bytesProvider) ReadBytes() ([]byte, error) { return b, nil }
func (bytesProvider) Read() (map[string]any, error) {
	return nil, errors.New("this provider gives bytes for a parser")
}

// second says in which line another YAML document begins, which the parser would pass over; 0: in none.
func second(data []byte) (line int) {
	begun := false
	for text := range bytes.Lines(data) {
		line++
		switch text = bytes.TrimRight(text, " \t\r\n"); {
		case begun && (bytes.Equal(text, []byte("---")) || bytes.HasPrefix(text, []byte("--- "))):
			return line
		case len(text) > 0 && text[0] != '#' && text[0] != '%':
			begun = true
		}
	}
	return 0
}

func (l *Loaded) decode(path string, data []byte) error {
	if line := second(data); line > 0 {
		return fmt.Errorf("configuration file %s: in line %d another document begins, which would not be read; make one of them", path, line)
	}
	k := koanf.New(".")
	if err := k.Load(bytesProvider(data), koanfyaml.Parser()); err != nil {
		return fmt.Errorf("configuration file %s: %w; write one `key: value` a line, see `dynamiccld serve --print-config`", path, err)
	}
	return l.apply(k, false, func(string) string { return "configuration file " + path })
}

func (l *Loaded) loadEnv(environ []string) error {
	l.Warnings = append(l.Warnings, EnvWarnings(environ)...)
	k := koanf.New(".")
	provider := env.Provider(".", env.Opt{
		Prefix:      EnvPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			for _, f := range fields {
				if f.env() == name && value != "" {
					return f.key, value
				}
			}
			return "", nil
		},
	})
	if err := k.Load(provider, nil); err != nil {
		return fmt.Errorf("environment: %w", err)
	}
	return l.apply(k, false, func(key string) string {
		f, _ := fieldOf(key)
		return "environment variable " + f.env()
	})
}

// EnvWarnings says which variables of ours nobody reads, or ranks not with their values.
func EnvWarnings(environ []string) (texts []string) {
	for _, e := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, EnvPrefix) {
			continue
		}
		if !isOther(name) && !slices.ContainsFunc(fields, func(f field) bool { return f.env() == name }) {
			texts = append(texts, fmt.Sprintf("environment variable %s is not known; did you mean %s?", name, nearestEnv(name)))
		}
		if text := rankWarning(name, value); text != "" {
			texts = append(texts, text)
		}
	}
	return texts
}

// apply sets what a source gives. shell: it was typed by somebody who sees a working directory. origin names the source
// of a key in errors.
func (l *Loaded) apply(k *koanf.Koanf, shell bool, origin func(key string) string) (first error) {
	keys := k.Keys()
	slices.Sort(keys)
	for _, key := range keys {
		if err := l.applyKey(key, k.Get(key), shell); err == nil {
			l.Origin[key] = origin(key)
		} else if first == nil {
			first = fmt.Errorf("%s: %w", origin(key), err)
		}
	}
	return first
}

func (l *Loaded) applyKey(key string, value any, shell bool) error {
	f, ok := fieldOf(key)
	if !ok {
		return fmt.Errorf("unknown key %q; %s`dynamiccld serve --print-config` lists all", key, meant(key))
	}
	text, err := scalar(value)
	if err == nil && f.kind == "path" && !shell && text != "" && text != StoreNone && !filepath.IsAbs(text) {
		err = relative(text)
	}
	before := l.Config
	if err == nil {
		err = f.set(&l.Config, text)
	}
	if err != nil {
		l.Config = before
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// relative refuses a path: daemon, ranks and commands start in different directories; only a flag is read where it was written.
func relative(path string) error {
	return fmt.Errorf("path %q is relative; give an absolute path", path)
}

// scalar gives a value the text that the field's parser reads, so that a file obeys the same rules as a flag.
func scalar(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", errors.New("has no value; give one or leave the key out")
	case string, bool, int, int64, uint64, float64:
		return fmt.Sprint(v), nil
	}
	return "", errors.New("holds a list; give a single value") // of what holds others each is a key
}
