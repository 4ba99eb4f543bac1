package launch

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/lease"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/nccltuner"
)

// RunVariable holds the id of the `dynamiccld run` that a rank belongs to.
const RunVariable = lease.RunVariable

// QuietVariable keeps ranks from saying on standard error why they run plain NCCL.
const QuietVariable = config.EnvPrefix + "QUIET"

// Names of other variables.
const (
	tunerVariable    = "NCCL_TUNER_PLUGIN"
	profilerVariable = "NCCL_PROFILER_PLUGIN"
	chainVariable    = "DYNAMICCL_CHAIN_PROFILER"
	exploreVariable  = config.EnvPrefix + "NO_EXPLORE"
	numericsVariable = config.EnvPrefix + "FIXED_NUMERICS"
	preloadVariable  = "LD_PRELOAD"
	// deviceVariable lets NCCL run its device kernels on ordinary buffers where the tuner asks for LL, as it does from 2.30.3 on. Before 2.29.2
	// NCCL does not read it.
	deviceVariable = "NCCL_SYM_NOWIN_ENABLE"
	// stackVariable has NCCL reserve when it starts what its kernels keep on their stacks. Without it the first launch of a kernel that
	// keeps more than those before waits, in the host, for all that is on the GPU, and a trial may be such a launch at any time.
	stackVariable = "NCCL_SET_STACK_SIZE"
)

// OwnVariables say to which daemon and run a rank belongs and what that may do: ranks of another purpose must not have
// them from whoever starts it.
var OwnVariables = []string{nccltuner.DirVariable, RunVariable, exploreVariable, numericsVariable}

// Wish is what the user asked for.
type Wish struct {
	Dir           string
	NoExplore     bool
	FixedNumerics bool
	ScratchMiB    ScratchMiB
	ScratchTotal  ScratchTotalMiB
	Plugin        Plugin
	PluginErr     error             // why there is no plugin; nil: there is one
	User          map[string]string // NCCL's settings that the user made, in the environment or in NCCL's files
	Preload       string            // the user's LD_PRELOAD
	TimesItself   bool              // the user has NCCL time its kernels, which needs no preload library
	HandedOn      bool              // NCCL_SYM_NOWIN_ENABLE=1 is of an outer run, or of `dynamiccld env` (HandedOn)
}

// PlainNCCL begins what is said of a program that runs without anything of ours.
const PlainNCCL = "running as plain NCCL: "

// Setup is what a program gets.
type Setup struct {
	Variables []Variable // in the order to print them; only what is not set yet
	Notes     []string   // one line each: what of the user's settings stays and what it means
	// Why says why nothing can be tuned whatever the daemon does; "": it can.
	Why string
}

// Variable is one environment variable.
type Variable struct{ Name, Value string }

// Prepare decides what a program's environment needs beside what the user set, which is never overruled.
func Prepare(w Wish) Setup {
	var s Setup
	if tuner, set := w.User[tunerVariable]; set && !ours(tuner) {
		s.Why = fmt.Sprintf("%s=%s is yours and stays: that plugin chooses, not DynamICCL; unset it to be tuned", tunerVariable, tuner)
		return s
	}
	if _, set := w.User[tunerVariable]; !set && w.PluginErr != nil {
		s.Why = fmt.Sprint(PlainNCCL, w.PluginErr)
		return s
	}
	s.otherBuild(w)
	s.add(nccltuner.DirVariable, w.Dir)
	s.unlessSet(w.User, tunerVariable, w.Plugin.Tuner)
	s.profiler(w)
	s.one(w.User, stackVariable, "the first call of a kernel may wait for all that is on the GPU, for ever if that waits for its host")
	if w.NoExplore {
		s.add(exploreVariable, "true")
	}
	if w.ScratchMiB != 0 {
		s.add(ScratchVariable, w.ScratchMiB.String())
	}
	if w.ScratchTotal != 0 {
		s.add(ScratchTotalVariable, w.ScratchTotal.String())
	}
	for _, name := range []string{"NCCL_ALGO", "NCCL_PROTO"} {
		if value, set := w.User[name]; set {
			s.Why = fmt.Sprintf("%s=%s is yours and stays: communicators pass through and nothing is tuned; unset it to be tuned", name, value)
		}
	}
	if w.FixedNumerics {
		// Without the device kernels too: what the user gets is NCCL's own sums.
		s.add(numericsVariable, "true")
		if value, set := w.User[deviceVariable]; set && value != "0" && !w.HandedOn {
			s.note("%s=%s is yours and stays: NCCL may add up in its device kernels, which --fixed-numerics would not ask for", deviceVariable, value)
		}
	} else if s.Why == "" && s.preloads(w) { // where nothing is tuned an LL is the user's; without the library nobody knows which AllReduce averages
		s.one(w.User, deviceVariable, "NCCL's device kernels are out of reach for buffers that are not registered")
		return s
	}
	if w.HandedOn { // who set it would not have, for this program
		s.add(deviceVariable, "0")
	}
	return s
}

func (s *Setup) profiler(w Wish) {
	value, set := w.User[profilerVariable]
	if !set && w.PluginErr == nil {
		s.add(profilerVariable, w.Plugin.Profiler)
		s.preload(w)
		return
	}
	switch {
	case !set:
		s.note("%s is not set and %v: stored choices are used, nothing is measured", profilerVariable, w.PluginErr)
	case !ours(value):
		s.note("%s=%s is yours and stays: stored choices are used, nothing is measured; to have both, unset it and set %s=%[2]s",
			profilerVariable, value, chainVariable)
	default:
		s.preload(w)
	}
}

func preloadSeparator(r rune) bool { return r == ':' || r == ' ' } // ld.so(8)

// Preloaded are the libraries of an LD_PRELOAD.
func Preloaded(value string) []string { return strings.FieldsFunc(value, preloadSeparator) }

// sanitizer is a runtime that ends the program where it does not come first (gcc's and clang's address sanitizers).
func sanitizer(path string) bool {
	name := filepath.Base(path)
	return strings.HasPrefix(name, "libasan.so") || strings.HasPrefix(name, "libhwasan.so") || strings.HasPrefix(name, "libclang_rt.")
}

// takesItWhole says that a library takes all of LD_PRELOAD for its own file: older torch_memory_saver (hooks/mode_preload.py) opens that,
// and its program ends where there is another name in it.
func takesItWhole(path string) bool {
	return strings.HasPrefix(filepath.Base(path), "torch_memory_saver")
}

// OursPreloaded is our library among those of an LD_PRELOAD; "": it is none of them.
func OursPreloaded(value string) string {
	libraries := Preloaded(value)
	if i := slices.IndexFunc(libraries, oursPreloaded); i >= 0 {
		return libraries[i]
	}
	return ""
}

func oursPreloaded(path string) bool { return filepath.Base(path) == preloadFile }

// preloads says that the program has our library.
func (s *Setup) preloads(w Wish) bool {
	return slices.ContainsFunc(Preloaded(w.Preload), oursPreloaded) || slices.ContainsFunc(s.Variables, func(v Variable) bool { return v.Name == preloadVariable })
}

// preload puts the library that times calls before what the user preloads, but behind sanitizers. Without it nothing is timed, unless
// the user has NCCL do it (nccltuner/plugin/capture.c).
func (s *Setup) preload(w Wish) {
	if s.preloads(w) {
		return
	}
	path, why := w.Plugin.Preload, ""
	switch theirs := Preloaded(w.Preload); {
	case path == "":
		why = preloadFile + " is not beside the plugin (`make plugin` builds it)"
	case strings.ContainsFunc(path, preloadSeparator):
		why = fmt.Sprintf("the loader takes no path with a space or colon (%s)", path)
	case len(theirs) == 1 && takesItWhole(theirs[0]):
		why = fmt.Sprintf("LD_PRELOAD=%s is yours and stays alone, for older releases of it take the whole variable for their file; with a newer one set LD_PRELOAD=%s:%[1]s", theirs[0], path)
	default:
		first := slices.IndexFunc(theirs, func(path string) bool { return !sanitizer(path) })
		if first < 0 {
			first = len(theirs)
		}
		s.add(preloadVariable, strings.Join(slices.Insert(theirs, first, path), ":"))
		return
	}
	if !w.TimesItself {
		s.note("%s: stored choices are used, nothing is measured", why)
	}
}

// one sets a variable to 1; where the user has another value, it says what that means.
func (s *Setup) one(user map[string]string, name, otherwise string) {
	s.unlessSet(user, name, "1")
	if value, set := user[name]; set && value != "1" {
		s.note("%s=%s is yours and stays: %s", name, value, otherwise)
	}
}

func (s *Setup) add(name, value string) { s.Variables = append(s.Variables, Variable{name, value}) }

func (s *Setup) unlessSet(user map[string]string, name, value string) {
	if _, set := user[name]; !set {
		s.add(name, value)
	}
}

func (s *Setup) note(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}

// Environ gives environ with the variables in it, each once.
func Environ(environ []string, variables []Variable) []string {
	out := slices.DeleteFunc(slices.Clone(environ), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.ContainsFunc(variables, func(v Variable) bool { return v.Name == name })
	})
	for _, v := range variables {
		out = append(out, v.Name+"="+v.Value)
	}
	return out
}

// Bare gives environ without what Prepare sets: that of a program that knows nothing of DynamICCL.
func Bare(environ []string) []string {
	return slices.DeleteFunc(withoutLibraries(environ), func(e string) bool {
		name, value, _ := strings.Cut(e, "=")
		return slices.Contains(OwnVariables, name) || (name == deviceVariable || name == stackVariable) && value == "1"
	})
}

// HandedOn says that an outer run, or `dynamiccld env`, has set NCCL_SYM_NOWIN_ENABLE=1 in environ, for a tuner plugin of ours is beside it.
func HandedOn(environ []string) bool {
	tuned, device := false, false
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		tuned = tuned || name == tunerVariable && ours(value)
		device = device || name == deviceVariable && value == "1"
	}
	return tuned && device
}

// Untuned gives the environment of a program that is to run as with plain NCCL whatever daemon lives, where environ may have our libraries
// from an outer run, or from a shell that took up `dynamiccld env`. One with another's tuner plugin is nothing of ours and stays. The device
// kernels go with the plugin, which alone keeps NCCL from calls that they do wrongly or have not.
func Untuned(environ []string) []string {
	if slices.ContainsFunc(environ, func(e string) bool {
		name, value, _ := strings.Cut(e, "=")
		return name == tunerVariable && !ours(value)
	}) {
		return environ
	}
	without := withoutLibraries(environ)
	if HandedOn(environ) {
		without = slices.DeleteFunc(without, func(e string) bool { return e == deviceVariable+"=1" })
	}
	return without
}

// withoutLibraries gives environ without what has a program load our libraries.
func withoutLibraries(environ []string) (without []string) {
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		switch {
		case (name == tunerVariable || name == profilerVariable) && ours(value):
			continue
		case name == preloadVariable:
			others := slices.DeleteFunc(Preloaded(value), oursPreloaded)
			if len(others) == 0 {
				continue
			}
			e = name + "=" + strings.Join(others, ":")
		}
		without = append(without, e)
	}
	return without
}

// Export writes the variables for `eval` of a POSIX shell. Values are quoted only where they need it: people copy lines into files whose readers
// take quotes for part of the value (~/.deepspeed_env, --env-file of containers).
func Export(variables []Variable) string {
	var b strings.Builder
	for _, v := range variables {
		fmt.Fprintf(&b, "export %s=%s\n", v.Name, units.Word(v.Value))
	}
	return b.String()
}
