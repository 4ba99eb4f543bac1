package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/doctor"
	"dynamiccl/cmd/dynamiccld/internal/kernelsfile"
	"dynamiccl/cmd/dynamiccld/internal/launch"
)

// refusedKernels says of ranks with this environment which files of our kernels they would refuse, those over GIN too where there are
// several nodes. They say so themselves, in logs that go where the ranks end well. None: they take them, or are to have none.
func (a *app) refusedKernels(environ []string, several bool) (texts []string) {
	getenv := lookup(environ)
	if config.SwitchedOn(getenv, "DYNAMICCL_NO_KERNELS") {
		return nil
	}
	library := launch.OursPreloaded(getenv("LD_PRELOAD"))
	if library != "" {
		library = doctor.Library(doctor.Host{Getenv: getenv, Root: a.sysroot}, library)
	}
	if library == "" {
		return nil // it has the kernels, and ranks without it have none whatever the file is
	}
	check := func(variable, name, without string) {
		if file, there := kernelsfile.Find(getenv, variable, filepath.Join(filepath.Dir(library), name)); there && file.Refused != "" {
			texts = append(texts, fmt.Sprintf("%s: %s; %s", file.Refused, without, file.Remedy))
		}
	}
	check(kernelsfile.Variable, kernelsfile.Name, "ranks have none of our kernels, and NCCL's alone are measured (DYNAMICCL_NO_KERNELS=1 leaves them out on purpose)")
	if several && getenv("DYNAMICCL_GIN") != "0" {
		for _, g := range kernelsfile.OverGIN {
			check(kernelsfile.GINVariable, g.Name, "ranks with NCCL "+g.NCCL+" have none of our kernels over GIN (DYNAMICCL_GIN=0 leaves them out on purpose)")
		}
	}
	return texts
}

// sayRefused says each of these once.
func (m *measuring) sayRefused(a *app, texts []string) {
	m.refused = once(texts)
	for _, text := range m.refused {
		a.note(text)
	}
}

// lookup finds variables in an environment, of one that is there twice the last, as programs get it.
func lookup(environ []string) func(name string) string {
	return func(name string) (value string) {
		for _, e := range environ {
			if n, v, _ := strings.Cut(e, "="); n == name {
				value = v
			}
		}
		return value
	}
}
