package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// The plugin under its two names, which both lead to one file, and the library that keeps its kernel events out of CUDA
// graphs.
const (
	tunerFile    = "libnccl-tuner-dynamiccl.so"
	profilerFile = "libnccl-profiler-dynamiccl.so"
	preloadFile  = "libdynamiccl.so"
)

// Plugin is where the two names of the library are, as absolute paths, and the preload library beside them.
type Plugin struct {
	Tuner, Profiler string
	Preload         string // "": it is not there
}

// FindPlugin looks in dir, or when that is "" beside the executable: ../lib, then the same folder.
func FindPlugin(dir, executable string) (Plugin, error) {
	dirs := []string{dir}
	if dir == "" {
		own := filepath.Dir(executable)
		dirs = []string{filepath.Join(filepath.Dir(own), "lib"), own}
	}
	for _, d := range dirs {
		abs, err := filepath.Abs(d)
		if err != nil {
			return Plugin{}, fmt.Errorf("folder %s: %w", d, err)
		}
		p := Plugin{filepath.Join(abs, tunerFile), filepath.Join(abs, profilerFile), filepath.Join(abs, preloadFile)}
		if !isFile(p.Preload) {
			p.Preload = ""
		}
		if isFile(p.Tuner) && isFile(p.Profiler) {
			if !SameFile(p.Tuner, p.Profiler) { // the link was followed when the folder was copied: two libraries that know nothing of each other
				p.Profiler = p.Tuner
			}
			return p, nil
		}
	}
	err := fmt.Errorf("%s and %s are not in %s", tunerFile, profilerFile, strings.Join(dirs, " or "))
	if dir != "" {
		return Plugin{}, fmt.Errorf("%w; give the folder that `make plugin` writes", err)
	}
	return Plugin{}, fmt.Errorf("%w; build them with `make plugin`, or name their folder with --plugin-dir", err)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// SameFile says that two paths lead to one file; false also where one leads to none.
func SameFile(a, b string) bool {
	one, err := os.Stat(a)
	other, otherErr := os.Stat(b)
	return err == nil && otherErr == nil && os.SameFile(one, other)
}

// ours says that a plugin variable of the user's names this project's plugin: by its short name, or by a file of its name.
func ours(value string) bool {
	base := filepath.Base(value)
	return value == "dynamiccl" || base == tunerFile || base == profilerFile
}
