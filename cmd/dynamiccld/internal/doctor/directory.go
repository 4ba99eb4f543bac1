package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/units"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
)

// A ring of 65,536 samples takes 5.5 MiB a rank process; with less than lowSpace eight ranks do not fit.
const (
	lowSpace = 64 << 20
	minSpace = 8 << 20
)

// checkDirectory says whether ranks and daemon of this user can meet, and whether its files can be looked at.
func checkDirectory(r *Report, h Host, _ map[string]setting) bool {
	const check = "directory"
	remedyOther := "name another directory with DYNAMICCL_DIR, for ranks and daemon alike"
	if ranks, err := nccltuner.DirPath(h.Getenv, h.EUID); err != nil {
		r.fail(check, err.Error(), "give an absolute path in DYNAMICCL_DIR")
	} else if ranks != h.Dir {
		r.fail(check, fmt.Sprintf("ranks started here would use %s and the daemon %s", ranks, h.Dir), "export DYNAMICCL_DIR="+units.Word(h.Dir)+" for the ranks")
	}
	if err := control.CheckDir(h.Dir); err != nil {
		r.fail(check, err.Error(), remedyOther)
		return false
	}
	info, err := os.Lstat(h.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		parent := filepath.Dir(h.Dir)
		if _, err := os.Stat(parent); err != nil {
			r.fail(check, fmt.Sprintf("%s does not exist and neither does %s", h.Dir, parent), "make "+parent+", or "+remedyOther)
		} else if !mayMake(h.Dir) {
			r.fail(check, fmt.Sprintf("%s does not exist, and you may make nothing in %s", h.Dir, parent), remedyOther)
		} else {
			r.ok(check, h.Dir+" does not exist yet: the first rank or the daemon makes it")
		}
		return false
	}
	if err != nil {
		r.fail(check, err.Error(), remedyOther)
		return false
	}
	st, _ := info.Sys().(*syscall.Stat_t)
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		r.fail(check, h.Dir+" is a symbolic link: ranks refuse it", "name the real directory, or "+remedyOther)
	case !info.IsDir():
		r.fail(check, h.Dir+" is not a directory", "remove it, or "+remedyOther)
	case st == nil || int(st.Uid) != h.EUID:
		owner := -1
		if st != nil {
			owner = int(st.Uid)
		}
		r.fail(check, fmt.Sprintf("%s belongs to uid %d and this is uid %d: ranks of yours refuse it", h.Dir, owner, h.EUID), "run ranks, daemon and doctor as one user, or "+remedyOther)
	case info.Mode().Perm() != 0o700:
		r.fail(check, fmt.Sprintf("%s has mode %04o: ranks refuse it, others could plant files there", h.Dir, info.Mode().Perm()), remedyOpen(h.Dir))
	case !mayMake(filepath.Join(h.Dir, "file")):
		r.fail(check, h.Dir+" cannot be written: ranks can make no files there and run plain NCCL", "mount its file system writable, or "+remedyOther)
		return true
	default:
		r.ok(check, h.Dir+" is yours alone")
		checkSpace(r, h.Dir)
		return true
	}
	return false
}

// remedyOpen is for a directory that others could reach.
func remedyOpen(dir string) string {
	const other = "name one that nothing else uses with DYNAMICCL_DIR"
	if !nccltuner.MayBeClosed(dir) {
		return other
	}
	return other + ", or, if this is it, chmod 0700 " + units.Word(dir)
}

// mayMake reports whether this user may make what is missing, with the folders above it.
func mayMake(path string) bool {
	for folder := filepath.Dir(path); ; folder = filepath.Dir(folder) {
		info, err := os.Stat(folder)
		if errors.Is(err, fs.ErrNotExist) && folder != filepath.Dir(folder) {
			continue
		}
		return err == nil && info.IsDir() && unix.Faccessat(unix.AT_FDCWD, folder, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
	}
}

// mayWrite reports whether this user may write what is there; root may not on a file system that is mounted read-only.
func mayWrite(path string) bool {
	return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) == nil
}

func checkSpace(r *Report, dir string) {
	var fsys syscall.Statfs_t
	if err := syscall.Statfs(dir, &fsys); err != nil {
		r.warn("space", fmt.Sprintf("free space of %s cannot be read: %v", dir, err), "look at `df "+units.Word(dir)+"`")
		return
	}
	free := fsys.Bavail * uint64(fsys.Bsize)
	text := fmt.Sprintf("%s free for shared files in %s", state.FormatBytes(free), dir)
	remedy := "free some space, or set DYNAMICCL_DIR to a directory on tmpfs with more"
	switch {
	case free < minSpace:
		r.fail("space", text+": ranks cannot make their files and run plain NCCL", remedy)
	case free < lowSpace:
		r.warn("space", text+": enough for a few ranks only (6 MiB each)", remedy)
	default:
		r.ok("space", text)
	}
}

// checkFiles looks at what ranks left in the directory and gives the processes that live.
func checkFiles(r *Report, h Host, daemon *control.Status) (pids []uint32) {
	const check = "files"
	dir, err := nccltuner.OpenDir(h.Dir)
	if err != nil {
		r.fail(check, err.Error(), "correct the directory")
		return nil
	}
	defer dir.Close()
	kept := []string{h.StorePath, h.TracePath}
	if daemon != nil {
		kept = append(kept, daemon.StorePath)
	}
	scanner := nccltuner.NewScanner(dir, kept...)
	defer scanner.Close()
	var found nccltuner.Changes
	if err := scanner.Scan(&found); err != nil {
		r.fail(check, err.Error(), "correct the directory")
		return nil
	}
	stale := 0
	for _, ring := range found.Rings {
		if alive, err := ring.Process().Alive(); alive || err != nil {
			pids = append(pids, ring.Process().PID)
		} else {
			stale++
		}
	}
	var view nccltuner.RecordView
	for _, record := range found.Records {
		if err := record.View(&view); err != nil {
			r.warn(check, err.Error(), "remove the file once no rank uses it")
			continue
		}
		if left, dead, err := view.Gone(nccltuner.Process.Alive); err == nil && len(view.Ranks) > 0 && left+dead == len(view.Ranks) {
			stale++
		}
	}
	elsewhere := 0
	for _, err := range found.Rejected {
		switch {
		case errors.Is(err, nccltuner.ErrElsewhere):
			elsewhere++
		case errors.Is(err, nccltuner.ErrVersion):
			r.fail(check, err.Error(), "install plugin and dynamiccld of one release; once no program uses the file any more a running daemon removes it")
		case errors.Is(err, nccltuner.ErrNotReady):
			// A rank is making it at this moment.
		default:
			r.warn(check, err.Error(), "remove the file if it is not yours")
		}
	}
	if elsewhere > 0 {
		r.warn(check, units.Count(elsewhere, "file")+" of processes in another PID namespace, as of another container: only a daemon there tunes them", "ask there; or start all with one PID namespace (--pid=host)")
	}
	text := units.Count(len(found.Records), "communicator") + ", " + fmt.Sprintf("live rank processes: %d", len(pids))
	if stale > 0 {
		r.warn(check, fmt.Sprintf("%s, %s of dead processes", text, units.Count(stale, "file")), "none needed: a running daemon and the next ranks clean up")
	} else {
		r.ok(check, text)
	}
	return pids
}
