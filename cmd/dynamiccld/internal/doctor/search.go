package doctor

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
)

// half is one plugin type of NCCL.
type half struct {
	name     string // "tuner"
	variable string
	prefix   string
	symbols  []string // newest first, as NCCL looks for them (src/plugin/{tuner,profiler}.cc, 2.30.7; profiler v7: 2.32.3)
}

var halves = []half{
	{"tuner", "NCCL_TUNER_PLUGIN", "libnccl-tuner", []string{"ncclTunerPlugin_v6", "ncclTunerPlugin_v5",
		"ncclTunerPlugin_v4", "ncclTunerPlugin_v3", "ncclTunerPlugin_v2"}},
	{"profiler", "NCCL_PROFILER_PLUGIN", "libnccl-profiler", []string{"ncclProfiler_v7", "ncclProfiler_v6", "ncclProfiler_v5",
		"ncclProfiler_v4", "ncclProfiler_v3", "ncclProfiler_v2", "ncclProfiler_v1"}},
}

// candidates are the names that NCCL hands to dlopen, in order (src/plugin/plugin_open.cc, 2.28.9 and 2.30.7).
func (p half) candidates(value string) []string {
	if value == "" {
		return []string{p.prefix + ".so"}
	}
	names := []string{value}
	if !strings.Contains(value, "/") && !(strings.HasPrefix(value, "lib") && strings.HasSuffix(value, ".so")) {
		names = append(names, p.prefix+"-"+value+".so")
	}
	return names
}

// static says that NCCL would look into the program itself: it compares as many letters as the value has.
func static(value string) bool {
	const name = "STATIC_PLUGIN"
	return value != "" && len(value) <= len(name) && strings.EqualFold(value, name[:len(value)])
}

// find gives the file that dlopen(name) would open: a path as it is, a name by LD_LIBRARY_PATH, the loader's cache, the
// default directories (ld.so(8)). RPATH and RUNPATH of libnccl come beside these and are not known here.
func find(h Host, name string) string {
	if strings.Contains(name, "/") {
		return regular(name)
	}
	if paths := h.Getenv("LD_LIBRARY_PATH"); paths != "" {
		for _, dir := range strings.FieldsFunc(paths, func(r rune) bool { return r == ':' || r == ';' }) {
			if path := loadable(filepath.Join(dir, name)); path != "" {
				return path
			}
		}
	}
	for _, path := range cached(h.Root+"/etc/ld.so.cache", name) {
		if path := loadable(h.Root + path); path != "" {
			return path
		}
	}
	for _, dir := range []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"} {
		if path := loadable(filepath.Join(h.Root+dir, name)); path != "" {
			return path
		}
	}
	return ""
}

func regular(path string) string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

// loadable skips libraries of another word size or processor, as the loader's search does.
func loadable(path string) string {
	if regular(path) == "" {
		return ""
	}
	if _, err := inspect(path); err == errOtherMachine {
		return ""
	}
	return path
}

// The cache of ldconfig, glibc's sysdeps/generic/dl-cache.h: a header of 48 bytes (magic, number of entries at byte 20),
// entries of 24 bytes (flags, offset of the name, offset of the path, ...), offsets from the magic. An older cache may
// stand before it in the file.
const (
	cacheMagic  = "glibc-ld.so.cache1.1"
	cacheHeader = 48
	cacheEntry  = 24
	maxCache    = 64 << 20
)

// cached gives the paths of a library in the loader's cache. A cache that is not understood has none.
func cached(path, library string) []string {
	info, err := os.Stat(path)
	if err != nil || info.Size() > maxCache {
		return nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return lookupCache(data, library)
}

func lookupCache(data []byte, library string) []string {
	start := bytes.Index(data, []byte(cacheMagic))
	if start < 0 {
		return nil
	}
	data = data[start:]
	if len(data) < cacheHeader {
		return nil
	}
	n := int(binary.LittleEndian.Uint32(data[20:]))
	if n > (len(data)-cacheHeader)/cacheEntry {
		return nil
	}
	text := func(offset uint32) string {
		if uint64(offset) >= uint64(len(data)) {
			return ""
		}
		s, _, _ := bytes.Cut(data[offset:], []byte{0})
		return string(s)
	}
	var paths []string
	for i := range n {
		e := data[cacheHeader+i*cacheEntry:]
		if text(binary.LittleEndian.Uint32(e[4:])) == library {
			if p := text(binary.LittleEndian.Uint32(e[8:])); strings.HasPrefix(p, "/") {
				paths = append(paths, p)
			}
		}
	}
	return paths
}

// Library gives the file that a program would load by this name; "": none, as far as the loader's own settings tell.
func Library(h Host, name string) string { return find(h, name) }
