package launch

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// handlersBefore is where Go keeps what each signal did when the process began: an array of addresses, one a signal.
const handlersBefore = "runtime.fwdSig"

// sigIgn is the kernel's SIG_IGN.
const sigIgn = 1

// ignoredBefore says which signals were ignored when this process began. Go installs its own handlers before main, and shows nobody what
// was there but for SIGHUP and SIGINT; so its note of that is read, by its name among the program's symbols, while nobody changes it.
// Who has stripped the program is not told.
func ignoredBefore() (ignored []syscall.Signal, known bool) {
	address, ok := symbol("/proc/self/exe", handlersBefore)
	if !ok {
		return nil, false
	}
	memory, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, false
	}
	defer memory.Close()
	const signals = 65 // and none is 0
	handlers := make([]byte, signals*8)
	if _, err := memory.ReadAt(handlers, int64(address)); err != nil {
		return nil, false
	}
	for s := 1; s < signals; s++ {
		if binary.NativeEndian.Uint64(handlers[s*8:]) == sigIgn {
			ignored = append(ignored, syscall.Signal(s))
		}
	}
	return ignored, true
}

// symbol finds a symbol of a program that is loaded where it was linked for.
func symbol(path, name string) (address uint64, ok bool) {
	file, err := elf.Open(path)
	if err != nil {
		return 0, false
	}
	defer file.Close()
	symbols, names := file.Section(".symtab"), file.Section(".strtab")
	if file.Type != elf.ET_EXEC || symbols == nil || names == nil {
		return 0, false
	}
	table, err := symbols.Data()
	if err != nil {
		return 0, false
	}
	text, err := names.Data()
	if err != nil {
		return 0, false
	}
	at := bytes.Index(text, []byte("\x00"+name+"\x00")) + 1
	if at == 0 {
		return 0, false
	}
	for entry := range slices.Chunk(table, elf.Sym64Size) { // the file's own order of bytes: this process runs it
		if len(entry) == elf.Sym64Size && binary.NativeEndian.Uint32(entry) == uint32(at) {
			return binary.NativeEndian.Uint64(entry[8:]), true
		}
	}
	return 0, false
}

// stayIgnored has signals that were ignored when this process began stay so here, and hence in the command: systemd, say, starts services
// with SIGPIPE ignored, and one that writes to a closed connection would end by it. Not SIGCHLD, without which no end of a child is told.
func stayIgnored() {
	before, known := ignoredBefore()
	if !known && signal.Ignored(unix.SIGINT) {
		before = append(before, unix.SIGQUIT) // the guess without that note: a shell's & ignores both
	}
	for _, s := range before {
		if s == unix.SIGPIPE || s == unix.SIGXFSZ || slices.Contains(forwarded, os.Signal(s)) {
			signal.Ignore(s)
		}
	}
}
