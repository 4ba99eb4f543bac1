package nccltuner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file holds all unsafe arithmetic, every mapping and every raw system call of the package. A cast from mapped bytes
// to a generated struct is sound because mappings start at a page, the structs hold only fixed-width integers (any bit
// pattern is a value), their layout is the host's (structs.HostLayout, compared with the C compiler in a test), and the
// length is checked before the cast.

const (
	headerSize = int64(unsafe.Sizeof(ABIHeader{}))
	recordSize = int64(unsafe.Sizeof(ABIRecord{}))
	rankSize   = int64(unsafe.Sizeof(ABIRank{}))
	ringSize   = int64(unsafe.Sizeof(ABIRing{}))
	cellSize   = int64(unsafe.Sizeof(ABISample{}))
	planWords  = int(unsafe.Sizeof(ABIPlan{}) / 8)
	// planCheckedFrom is the first word that the checksum covers.
	planCheckedFrom = int(unsafe.Offsetof(ABIPlan{}.NumEntries) / 8)
)

// fileID tells one generation of a file from the next of the same name: a mapped inode is never reused.
type fileID struct{ dev, ino uint64 }

// fileStamp changes when a file is replaced or its size or status changes.
type fileStamp struct {
	id             fileID
	size           int64
	ctimeS, ctimeN int64
}

// past says that whatever happens to the file from now on gives it another stamp. The kernel's clock for these goes in steps of up to
// 10 ms.
func (s *fileStamp) past(now time.Time) bool {
	return now.Sub(time.Unix(s.ctimeS, s.ctimeN)) > 100*time.Millisecond
}

func stampOf(st *unix.Stat_t) fileStamp {
	return fileStamp{fileID{uint64(st.Dev), st.Ino}, st.Size, int64(st.Ctim.Sec), int64(st.Ctim.Nsec)}
}

// mapping is one shared file in memory. Invariant: len(data) is what the file held when it was mapped.
type mapping struct {
	name   string
	id     fileID
	data   []byte
	mapped bool // false: memory of the Go heap (tests), or unmapped
}

// mapFile opens and maps a file of the directory. Type, owner and size are checked first: opening a device must not hang,
// and touching memory beyond the end of a file is a signal.
func mapFile(dirFD int, name string, uid uint32, maxSize int64) (*mapping, error) {
	fd, err := unix.Openat(dirFD, name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.EISDIR) {
		return nil, fmt.Errorf("opening %s: not a regular file: %w", name, ErrForeign)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", name, err)
	}
	defer unix.Close(fd) // the mapping keeps the file
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("looking at %s: %w", name, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, fmt.Errorf("opening %s: not a regular file: %w", name, ErrForeign)
	case st.Uid != uid:
		return nil, fmt.Errorf("opening %s: it belongs to user %d, this is user %d: %w", name, st.Uid, uid, ErrForeign)
	case st.Size == 0:
		return nil, fmt.Errorf("opening %s: %w", name, ErrNotReady)
	case st.Size < headerSize:
		return nil, fmt.Errorf("opening %s: %d bytes, not even a header: %w", name, st.Size, ErrTorn)
	case st.Size > maxSize:
		return nil, fmt.Errorf("opening %s: %d bytes, at most %d make sense: %w", name, st.Size, maxSize, ErrGarbage)
	}
	data, err := unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", name, err)
	}
	return &mapping{name, stampOf(&st).id, data, true}, nil
}

// refused closes a mapping that is not used and says why. A file that grew behind mapFile's look was being made, and is whole by now.
func refused(dirFD int, m *mapping, why error) error {
	var st unix.Stat_t
	size := int64(len(m.data))
	_ = m.close() // the reason why is what the caller needs
	if errors.Is(why, ErrTorn) && unix.Fstatat(dirFD, m.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Size > size {
		why = ErrNotReady
	}
	return fmt.Errorf("opening %s: %w", m.name, why)
}

func (m *mapping) close() error {
	data, mapped := m.data, m.mapped
	m.data, m.mapped = nil, false
	if !mapped {
		return nil
	}
	if err := unix.Munmap(data); err != nil {
		return fmt.Errorf("unmapping %s: %w", m.name, err)
	}
	return nil
}

// guard runs f, which touches the mapping, and turns a fault there into ErrTorn: a file that was truncated after it was
// mapped. A fault anywhere else is our own bug and stays a panic.
func (m *mapping) guard(f func()) (err error) {
	if m.data == nil {
		return fmt.Errorf("%s: %w", m.name, ErrClosed)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		fault, ok := p.(interface{ Addr() uintptr })
		if base := uintptr(unsafe.Pointer(&m.data[0])); !ok || fault.Addr()-base >= uintptr(len(m.data)) {
			panic(p)
		}
		err = fmt.Errorf("%s: truncated while in use: %w", m.name, ErrTorn)
	}()
	f()
	return nil
}

// header views the mapped bytes; mapFile has checked that they are there.
func (m *mapping) header() *ABIHeader { return (*ABIHeader)(unsafe.Pointer(&m.data[0])) }

// record and ring view the whole file; callers have checked its size.
func (m *mapping) record(numRanks int) (*ABIRecord, []ABIRank) {
	_ = m.data[recordSize+int64(numRanks)*rankSize-1]
	first := (*ABIRank)(unsafe.Pointer(&m.data[recordSize]))
	return (*ABIRecord)(unsafe.Pointer(&m.data[0])), unsafe.Slice(first, numRanks)
}

func (m *mapping) ring(numCells int) (*ABIRing, []ABISample) {
	_ = m.data[ringSize+int64(numCells)*cellSize-1]
	first := (*ABISample)(unsafe.Pointer(&m.data[ringSize]))
	return (*ABIRing)(unsafe.Pointer(&m.data[0])), unsafe.Slice(first, numCells)
}

// fixedRecord and fixedRing serve to read what the creator wrote once. Callers have checked that the struct fits.
func (m *mapping) fixedRecord() *ABIRecord { return (*ABIRecord)(unsafe.Pointer(&m.data[0])) }
func (m *mapping) fixedRing() *ABIRing     { return (*ABIRing)(unsafe.Pointer(&m.data[0])) }

// words views a plan as the 64-bit words that its checksum is made of.
func (p *ABIPlan) words() *[planWords]uint64 { return (*[planWords]uint64)(unsafe.Pointer(p)) }

// markWords are a rank's marks, two to a word: whether they are as they were takes half as many loads so.
type markWords [NumCollectives * NumBuckets / 2]uint64

// The array is as long as the marks, and lies so that a word is loaded whole.
var _ = [1]struct{}{}[unsafe.Sizeof(markWords{})-unsafe.Sizeof(ABIRank{}.Marks)+unsafe.Offsetof(ABIRank{}.Marks)%8+unsafe.Sizeof(ABIRank{})%8+unsafe.Sizeof(ABIRecord{})%8]

func (r *ABIRank) markWords() *markWords { return (*markWords)(unsafe.Pointer(&r.Marks)) }

// magic is zero until the creator has finished. The load pairs with the creator's last store: what it wrote before is
// visible afterwards.
func (m *mapping) magic() uint64 { return atomic.LoadUint64(&m.header().Magic) }

// dirStatus is what the safety of a directory depends on.
type dirStatus struct {
	uid  uint32
	perm uint32
}

// makeAndOpenDir makes the last part of path when it is missing and opens it without following a symbolic link.
func makeAndOpenDir(path string) (fd int, st dirStatus, err error) {
	if err := unix.Mkdir(path, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, st, fmt.Errorf("making it: %w", err)
	}
	fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, st, fmt.Errorf("opening it (no symbolic link is followed): %w", err)
	}
	var s unix.Stat_t
	if err := unix.Fstat(fd, &s); err != nil {
		unix.Close(fd)
		return -1, st, fmt.Errorf("looking at it: %w", err)
	}
	return fd, dirStatus{s.Uid, s.Mode & 0o7777}, nil
}

// takesFiles says that path is a folder in which this user may make something.
func takesFiles(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path+"/.", unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
}

// dirStamp changes when something appears in the directory or leaves it; false once the directory itself was removed under its open
// descriptor. It is asked for in every tick of a daemon, so Go's scheduler is not told of the call, which would wake up its watchdog:
// the kernel has the answer in memory, and no directory is on a network.
func dirStamp(fd int) (fileStamp, bool) {
	var st unix.Stat_t
	_, _, errno := unix.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(&st)), 0)
	return stampOf(&st), errno == 0 && st.Nlink > 0
}

func closeFD(fd int) error { return unix.Close(fd) }

// lockFile opens a lock file of the directory and locks it without waiting. held: somebody else has it; then the
// descriptor is good for reading only.
func lockFile(dirFD int, name string) (fd int, held bool, err error) {
	fd, err = unix.Openat(dirFD, name, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, false, fmt.Errorf("opening %s: %w", name, err)
	}
	for {
		switch err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); {
		case err == nil:
			return fd, false, nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return fd, true, nil
		case !errors.Is(err, unix.EINTR):
			unix.Close(fd)
			return -1, false, fmt.Errorf("locking %s: %w", name, err)
		}
	}
}

// shareLock locks a directory beside whoever else does so. Nothing rests on it.
func shareLock(fd int) { _ = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) }

// replaceContent and readContent are for the few bytes of a lock file.
func replaceContent(fd int, text string) error {
	if err := unix.Ftruncate(fd, 0); err != nil {
		return err
	}
	_, err := unix.Pwrite(fd, []byte(text), 0)
	return err
}

func readContent(fd int) string {
	var buf [64]byte
	n, err := unix.Pread(fd, buf[:], 0)
	if err != nil {
		return ""
	}
	return string(buf[:n])
}

// readOnce reads a file of the kernel's that fits into buf. os.ReadFile asks the poller first, which is most of what it costs.
func readOnce(path string, buf []byte) ([]byte, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			var n int
			n, err = unix.Read(fd, buf)
			unix.Close(fd)
			if err == nil {
				return buf[:n], nil
			}
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
	}
}

func idOf(fd int) (fileID, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return stampOf(&st).id, err
}

// missing says that nothing is there, and not that nobody may look.
func missing(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

func statPath(path string) (fileID, error) {
	stamp, err := statAt(unix.AT_FDCWD, path)
	return stamp.id, err
}

func statAt(dirFD int, name string) (fileStamp, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(dirFD, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fileStamp{}, fmt.Errorf("looking at %s: %w", name, err)
	}
	return stampOf(&st), nil
}

// unused reports that no process of this host, in whatever namespace, has a file open or mapped for writing: the kernel grants a lease to
// nobody else (fcntl(2), F_SETLEASE). It is given back at once. Where there are no leases nobody knows, and the file counts as used.
func unused(dirFD int, name string) bool {
	fd, err := unix.Openat(dirFD, name, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
	return err == nil
}

func unlinkAt(dirFD int, name string) error {
	if err := unix.Unlinkat(dirFD, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("removing %s: %w", name, err)
	}
	return nil
}

// listDir calls f for every name but . and .. with the inode that the directory itself states, which saves a stat a file
// (struct linux_dirent64, getdents64(2)). On stacked file systems that inode may differ from stat's. name is only valid
// during the call.
func listDir(dirFD int, buf []byte, f func(name []byte, ino uint64)) error {
	if _, err := unix.Seek(dirFD, 0, unix.SEEK_SET); err != nil {
		return fmt.Errorf("rewinding: %w", err)
	}
	const nameAt = 19
	for {
		n, err := unix.Getdents(dirFD, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("listing: %w", err)
		}
		if n == 0 {
			return nil
		}
		for rest := buf[:n]; len(rest) > nameAt; {
			length := int(binary.NativeEndian.Uint16(rest[16:]))
			if length <= nameAt || length > len(rest) {
				return fmt.Errorf("listing: entry of %d bytes: %w", length, ErrGarbage)
			}
			name := rest[nameAt:length]
			for i, c := range name {
				if c == 0 {
					name = name[:i]
					break
				}
			}
			if s := string(name); s != "." && s != ".." {
				f(name, binary.NativeEndian.Uint64(rest))
			}
			rest = rest[length:]
		}
	}
}
