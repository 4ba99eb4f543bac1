package launch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// otherBuild says which of our libraries stay that are another build's than this program's: a shell took up `env` before an update, or an
// outer run is another's. Its daemon and this one may have no layout in common, and what is gone NCCL passes over without a word.
func (s *Setup) otherBuild(w Wish) {
	if w.PluginErr != nil {
		return
	}
	var names []string
	first, gone := "", ""
	look := func(name, set, found string) {
		if !filepath.IsAbs(set) || found == "" || set == found { // a bare name is the loader's to find
			return
		}
		theirs, err := os.Stat(set)
		if ours, bad := os.Stat(found); err == nil && bad == nil && os.SameFile(theirs, ours) {
			return
		}
		if names = append(names, name); first == "" {
			first = set
		}
		if errors.Is(err, fs.ErrNotExist) {
			gone = ", which is not there"
		}
	}
	look(tunerVariable, w.User[tunerVariable], w.Plugin.Tuner)
	if profiler := w.User[profilerVariable]; ours(profiler) {
		look(profilerVariable, profiler, w.Plugin.Profiler)
	}
	for _, path := range Preloaded(w.Preload) {
		if filepath.Base(path) == preloadFile {
			look(preloadVariable, path, w.Plugin.Preload)
		}
	}
	if len(names) > 0 {
		s.note("what is set already stays (%s): another build's %s%s, not this program's %s; unset it, or use the dynamiccld that belongs to it",
			strings.Join(names, ", "), first, gone, filepath.Dir(w.Plugin.Tuner))
	}
}
