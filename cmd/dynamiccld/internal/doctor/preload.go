package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	preloadFile   = "libdynamiccl-preload.so"
	preloadSymbol = "dynamiccl_preload" // nccltuner/preload/preload.h
)

// checkPreload says whether the profiler may time kernels: with the preload library, or where the user promises that no
// CUDA graphs are captured (nccltuner/plugin/capture.c). profiler is ours.
func checkPreload(r *Report, h Host, profiler *library) {
	for _, name := range strings.FieldsFunc(h.Getenv("LD_PRELOAD"), func(c rune) bool { return c == ':' || c == ' ' }) { // ld.so(8)
		if filepath.Base(name) != preloadFile {
			continue
		}
		remedy := "build it with `make plugin` and give its path in LD_PRELOAD, or start the program with `dynamiccld run`"
		path := find(h, name)
		if path == "" {
			r.fail("preload", fmt.Sprintf("LD_PRELOAD names %s, which is not there: kernels are not timed and nothing is explored", name), remedy)
			return
		}
		lib, err := inspect(path)
		switch {
		case err != nil:
			r.fail("preload", fmt.Sprintf("LD_PRELOAD names %s, which cannot be loaded: %v", path, err), remedy)
		case !lib.symbols[preloadSymbol]:
			r.fail("preload", path+" is another library of this name", remedy)
		default:
			r.ok("preload", "kernel events stay out of CUDA graphs: "+path+" is preloaded")
		}
		return
	}
	if promised, err := strconv.ParseBool(h.Getenv("DYNAMICCL_NO_GRAPHS")); err == nil && promised {
		r.ok("preload", "DYNAMICCL_NO_GRAPHS promises that no CUDA graphs are captured: DYNAMICCL_KERNEL_EVENTS=1 needs no preload library")
		return
	}
	beside := filepath.Join(filepath.Dir(profiler.path), preloadFile)
	remedy := "start the program with `dynamiccld run`, or export LD_PRELOAD=" + beside
	if info, err := os.Stat(beside); err != nil || !info.Mode().IsRegular() {
		remedy = "build " + preloadFile + " with `make plugin`, then start the program with `dynamiccld run`"
	}
	r.warn("preload", preloadFile+" is not in LD_PRELOAD: kernels are not timed and nothing is explored, or CUDA graphs would be slow for ever",
		remedy+"; for programs without CUDA graphs DYNAMICCL_NO_GRAPHS=1 will do")
}
