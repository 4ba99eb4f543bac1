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

// refusedKernels says of ranks with this environment that they would refuse the file of our kernels; "": they take it, or are to have none.
// They say so themselves, in logs that go where the ranks end well.
func (a *app) refusedKernels(environ []string) string {
	getenv := lookup(environ)
	if config.SwitchedOn(getenv, "DYNAMICCL_NO_KERNELS") {
		return ""
	}
	library := launch.OursPreloaded(getenv("LD_PRELOAD"))
	if library != "" {
		library = doctor.Library(doctor.Host{Getenv: getenv, Root: a.sysroot}, library)
	}
	if library == "" {
		return "" // it has the kernels, and ranks without it have none whatever the file is
	}
	file, there := kernelsfile.Find(getenv, kernelsfile.Variable, filepath.Join(filepath.Dir(library), kernelsfile.Name))
	if !there || file.Refused == "" {
		return ""
	}
	return fmt.Sprintf("%s: ranks have none of our kernels, and NCCL's alone are measured; %s (DYNAMICCL_NO_KERNELS=1 leaves them out on purpose)", file.Refused, file.Remedy)
}

// sayRefused says each of these once.
func (m *measuring) sayRefused(a *app, texts ...string) {
	for _, text := range once(texts) {
		if text != "" {
			m.refused = text
			a.note(text)
		}
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
