package doctor

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// setBoth says how both halves come to be loaded. What the user has set goes first, for `run` and `env` keep it.
func setBoth(env map[string]setting) string {
	remedy := "start the program with `dynamiccld run`, or in this shell after eval \"$(dynamiccld env)\""
	var unset []string
	for _, p := range halves {
		switch s, set := env[p.variable]; {
		case set && s.origin == fromEnvironment:
			unset = append(unset, p.variable)
		case set:
			remedy = "remove " + p.variable + " from " + s.origin + ", then " + remedy
		}
	}
	if len(unset) > 0 {
		remedy = "unset " + strings.Join(unset, " ") + ", then " + remedy
	}
	return remedy
}

// checkPlugins follows NCCL from the variables to the symbols, for both halves and then for the pair.
func checkPlugins(r *Report, h Host, env map[string]setting, nccl string) {
	var loaded [2]*library
	for i, p := range halves {
		loaded[i] = checkHalf(r, h, p, env)
	}
	if path := h.Getenv("DYNAMICCL_CHAIN_PROFILER"); path != "" {
		checkChain(r, h, path, loaded[1])
	}
	tuner, profiler := loaded[0], loaded[1]
	if profiler != nil {
		checkPreload(r, h, profiler, nccl)
	}
	switch {
	case tuner == nil && profiler == nil:
		return
	case tuner == nil:
		r.fail("halves", "the profiler would be loaded without the tuner: everything is measured and nothing chosen", setBoth(env))
	case profiler == nil:
		r.warn("halves", "the tuner would be loaded without the profiler: stored choices are used, nothing is explored",
			setBoth(env)+"; another profiler plugin can be chained with DYNAMICCL_CHAIN_PROFILER")
	case !os.SameFile(tuner.info, profiler.info):
		r.fail("halves", fmt.Sprintf("tuner and profiler are two files (%s, %s): two copies would be loaded that know nothing of each other", tuner.path, profiler.path),
			"make one name a symbolic link to the other, as `make plugin` does")
	default:
		r.ok("halves", "tuner and profiler are one library")
	}
}

// checkHalf gives the library if it is ours and NCCL would load it.
func checkHalf(r *Report, h Host, p half, env map[string]setting) *library {
	s := env[p.variable]
	origin := p.variable + " is not set"
	if s.value != "" {
		origin = fmt.Sprintf("%s=%s (%s)", p.variable, s.value, s.origin)
	}
	switch {
	case strings.EqualFold(s.value, "none"):
		r.fail(p.name, origin+": NCCL loads no "+p.name+" plugin", setBoth(env))
		return nil
	case static(s.value):
		r.fail(p.name, origin+": NCCL looks for the plugin inside of the program", setBoth(env))
		return nil
	}
	names := p.candidates(s.value)
	for _, name := range names {
		path := find(h, name)
		if path == "" {
			continue
		}
		return checkLibrary(r, h, p, origin, path, setBoth(env))
	}
	text := fmt.Sprintf("%s: NCCL would look for %s and find nothing", origin, strings.Join(names, ", then "))
	if s.value == "" {
		r.fail(p.name, text, setBoth(env))
		return nil
	}
	remedy := "put the directory of lib" + strings.TrimPrefix(p.prefix, "lib") + "-dynamiccl.so into LD_LIBRARY_PATH, or its path into " + p.variable
	if ld := h.Getenv("LD_LIBRARY_PATH"); ld != "" {
		text += " (LD_LIBRARY_PATH=" + ld + ")"
	}
	r.fail(p.name, text, remedy)
	return nil
}

func checkLibrary(r *Report, h Host, p half, origin, path, remedy string) *library {
	lib, err := inspect(path)
	switch {
	case errors.Is(err, errOtherMachine):
		r.fail(p.name, path+" is built for another processor", "build the plugin on this host with `make plugin`")
		return nil
	case err != nil:
		r.fail(p.name, fmt.Sprintf("%s cannot be read as a library: %v", path, err), "build the plugin again with `make plugin`")
		return nil
	}
	symbol := lib.newest(p.symbols)
	switch {
	case symbol == "":
		r.fail(p.name, fmt.Sprintf("%s exports no %s that NCCL knows (%s ...)", path, p.name, p.symbols[0]), "build the plugin again with `make plugin`")
		return nil
	case !lib.ours:
		r.fail(p.name, fmt.Sprintf("%s: NCCL would load %s, another plugin", origin, path), remedy)
		return nil
	case lib.abi < 0:
		r.warn(p.name, fmt.Sprintf("%s: NCCL would load %s, newest interface %s; its shared-memory layout is not known", origin, path, symbol),
			"use the plugin of the same release as dynamiccld")
		return &lib
	case lib.abi != h.ABI:
		r.fail(p.name, fmt.Sprintf("%s has shared-memory layout %d, this dynamiccld %d: ranks would pass through", path, lib.abi, h.ABI),
			"install plugin and dynamiccld of one release")
		return nil
	}
	r.ok(p.name, fmt.Sprintf("%s: NCCL would load %s, newest interface %s", origin, path, symbol))
	return &lib
}

// checkChain looks at the profiler that ours passes events on to. Ours opens it by the same names as NCCL.
func checkChain(r *Report, h Host, value string, ours *library) {
	for _, name := range halves[1].candidates(value) {
		path := find(h, name)
		if path == "" {
			continue
		}
		lib, err := inspect(path)
		switch {
		case err != nil:
			r.fail("chain", fmt.Sprintf("DYNAMICCL_CHAIN_PROFILER=%s: %v", value, err), "name a profiler plugin for NCCL")
		case lib.newest(halves[1].symbols) == "":
			r.fail("chain", path+" exports no profiler that NCCL knows", "name a profiler plugin for NCCL")
		case ours != nil && os.SameFile(ours.info, lib.info):
			r.fail("chain", "DYNAMICCL_CHAIN_PROFILER names this plugin itself", "name the other profiler, or unset it")
		default:
			r.ok("chain", "events are passed on to "+path)
		}
		return
	}
	r.fail("chain", "DYNAMICCL_CHAIN_PROFILER="+value+": no such library", "give its path, or unset it")
}
