package doctor

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
)

var errOtherMachine = errors.New("built for another processor")

// What stands in our library's read-only data: the variable that it reads, and abiMarker with DYN_ABI_VERSION in decimal
// and a zero byte after it.
const (
	ownMarker = "DYNAMICCL_DIR"
	abiMarker = "dynamiccl-abi="
)

// ncclVersion is what NCCL says of itself with NCCL_DEBUG=VERSION (VERSION_STRING, src/init.cc).
var ncclVersion = regexp.MustCompile(`NCCL version ([0-9]+\.[0-9]+\.[0-9]+)[^ \x00]{0,16}\+cuda[0-9]`)

// maxRodata bounds what is read of a library; ours is some kilobytes.
const maxRodata = 16 << 20

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// library is what a file exports.
type library struct {
	path    string // where the link leads
	info    os.FileInfo
	symbols map[string]bool
	ours    bool
	abi     int    // -1: not known
	nccl    string // version, of NCCL itself; "": not known
}

// inspect reads a shared library without running anything of it.
func inspect(path string) (lib library, err error) {
	// debug/elf reads sizes from the file; a damaged one must not end the other checks.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s is damaged: %v", path, p)
		}
	}()
	f, err := elf.Open(path)
	if err != nil {
		return lib, err
	}
	defer f.Close()
	if want, known := machines[runtime.GOARCH]; f.Class != elf.ELFCLASS64 || known && f.Machine != want {
		return lib, errOtherMachine
	}
	lib = library{path: path, symbols: map[string]bool{}, abi: -1}
	if lib.info, err = os.Stat(path); err != nil {
		return lib, err
	}
	symbols, err := f.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return lib, err
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			lib.symbols[s.Name] = true
		}
	}
	if section := f.Section(".rodata"); section != nil && section.Size <= maxRodata {
		if data, err := section.Data(); err == nil {
			lib.ours, lib.abi = bytes.Contains(data, []byte(ownMarker)), marker(data)
			if found := ncclVersion.FindSubmatch(data); found != nil {
				lib.nccl = string(found[1])
			}
		}
	}
	return lib, nil
}

func marker(data []byte) int {
	_, rest, found := bytes.Cut(data, []byte(abiMarker))
	if !found {
		return -1
	}
	digits, _, _ := bytes.Cut(rest[:min(len(rest), 12)], []byte{0})
	n, err := strconv.Atoi(string(digits))
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// newest is the newest of the symbols that the library exports.
func (l library) newest(symbols []string) string {
	for _, s := range symbols {
		if l.symbols[s] {
			return s
		}
	}
	return ""
}
