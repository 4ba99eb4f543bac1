package doctor

import (
	"fmt"
	"os"
	"path/filepath"

	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/kernelsfile"
	"dynamiccl/cmd/dynamiccld/internal/launch"
)

const (
	preloadFile   = "libdynamiccl.so"
	preloadSymbol = "dynamiccl_preload" // nccltuner/preload/preload.h
)

// checkKernels says whether our own kernels are there for the preload library (kernels/host/module.c). Nothing is wrong where
// they are not: NCCL runs all calls. A file that ranks refuse was meant for them.
func checkKernels(r *Report, h Host, dir string) {
	file, there := kernelsfile.Find(h.Getenv, kernelsfile.Variable, filepath.Join(dir, kernelsfile.Name))
	switch {
	case config.SwitchedOn(h.Getenv, "DYNAMICCL_NO_KERNELS"):
		r.ok("kernels", "DYNAMICCL_NO_KERNELS is set: NCCL runs all calls")
	case !there:
		r.ok("kernels", "our own are not built, NCCL runs all calls: `make kernels` builds them")
	case file.Refused != "":
		r.fail("kernels", file.Refused+": ranks refuse it, and NCCL runs all calls", file.Remedy)
	default:
		r.ok("kernels", "ranks of one node may run our own: "+file.Path)
	}
}

// checkPreload says whether calls are timed: by the preload library or, where the user asks for kernel events and promises
// that no CUDA graphs are captured, by NCCL (nccltuner/plugin/capture.c). profiler is ours.
func checkPreload(r *Report, h Host, profiler *library, nccl string) {
	for _, name := range launch.Preloaded(h.Getenv("LD_PRELOAD")) {
		if filepath.Base(name) != preloadFile {
			continue
		}
		remedy := "build it with `make plugin` and give its path in LD_PRELOAD, or start the program with `dynamiccld run`"
		path := find(h, name)
		if path == "" {
			r.fail("preload", fmt.Sprintf("LD_PRELOAD names %s, which is not there: calls are not timed and nothing is explored", name), remedy)
			return
		}
		lib, err := inspect(path)
		switch {
		case err != nil:
			r.fail("preload", fmt.Sprintf("LD_PRELOAD names %s, which cannot be loaded: %v", path, err), remedy)
		case !lib.symbols[preloadSymbol]:
			r.fail("preload", path+" is another library of this name", remedy)
		default:
			r.ok("preload", "calls are timed by CUDA events: "+path+" is preloaded")
			checkKernels(r, h, filepath.Dir(path))
			checkGIN(r, h, filepath.Dir(path), nccl)
		}
		return
	}
	if config.SwitchedOn(h.Getenv, config.NoGraphsVariable) && config.SwitchedOn(h.Getenv, config.KernelEventsVariable) {
		r.ok("preload", "DYNAMICCL_KERNEL_EVENTS has NCCL time kernels, and DYNAMICCL_NO_GRAPHS promises that no CUDA graphs are captured: no preload library is needed")
		return
	}
	beside := filepath.Join(filepath.Dir(profiler.path), preloadFile)
	remedy := "start the program with `dynamiccld run`, or export LD_PRELOAD=" + beside
	if info, err := os.Stat(beside); err != nil || !info.Mode().IsRegular() {
		remedy = "build " + preloadFile + " with `make plugin`, then start the program with `dynamiccld run`"
	}
	r.warn("preload", preloadFile+" is not in LD_PRELOAD: calls are not timed and nothing is explored", remedy)
}
