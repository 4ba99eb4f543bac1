package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	errOtherRun = errors.New("another run writes it")
	errNoLocks  = errors.New("the file system has no locks")
)

// maxLockRaces bounds how often the lock file is removed, by a run that ends, between opening and locking it.
const maxLockRaces = 100

// lockName is the file that is locked in place of path: path itself gets another inode at every writing.
func lockName(path string) string {
	dir, name := filepath.Split(path)
	return dir + "." + name + ".lock"
}

// lock keeps other runs off path until unlock, or the end of this process however it comes about.
func lock(path string, flock func(fd, how int) error) (unlock func() error, err error) {
	name := lockName(path)
	for range maxLockRaces {
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
		if err != nil {
			return nil, fmt.Errorf("locking %s: %w; name a file in a folder of your own", path, err)
		}
		err = flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case errors.Is(err, unix.EWOULDBLOCK):
			defer file.Close()
			return nil, fmt.Errorf("%s: %w%s: wait for it or stop it, or name other files with --out and --checkpoint", path, errOtherRun, holder(file))
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.ENOTSUP), errors.Is(err, unix.ENOLCK):
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, errNoLocks), file.Close(), os.Remove(name))
		case err != nil:
			return nil, errors.Join(fmt.Errorf("locking %s: %w; name a file elsewhere", path, err), file.Close())
		}
		if !leads(name, file) { // the run that held it has removed it: the lock is of a file that others do not see
			file.Close()
			continue
		}
		if err := errors.Join(file.Truncate(0), pid(file)); err != nil {
			return nil, errors.Join(fmt.Errorf("locking %s: %w; is the disk full?", path, err), os.Remove(name), file.Close())
		}
		return func() error {
			var err error
			if leads(name, file) { // before closing: nobody else may have the lock of it by now
				err = os.Remove(name)
			}
			if err = errors.Join(err, file.Close()); err != nil {
				return fmt.Errorf("unlocking %s: %w; remove %s", path, err, name)
			}
			return nil
		}, nil
	}
	return nil, fmt.Errorf("%s: runs on it come and go: %w: name other files with --out and --checkpoint", path, errOtherRun)
}

// leads reports whether name is still that of the open file.
func leads(name string, file *os.File) bool {
	named, err1 := os.Lstat(name)
	opened, err2 := file.Stat()
	return err1 == nil && err2 == nil && os.SameFile(named, opened)
}

func pid(file *os.File) error {
	_, err := file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder is the process that has locked the file, where it has said so already.
func holder(file *os.File) string {
	var text [32]byte
	n, _ := file.ReadAt(text[:], 0)
	if id, err := strconv.Atoi(strings.TrimSpace(string(text[:n]))); err == nil {
		return fmt.Sprintf(" (process %d)", id)
	}
	return ""
}

// lockAll locks what two runs must not both write; say hears where that cannot be had.
func (o *options) lockAll(say func(error)) (unlock func() error, err error) {
	var held []func() error
	unlock = func() error {
		var all error
		for _, one := range held {
			all = errors.Join(all, one())
		}
		return all
	}
	for _, path := range []string{o.out, o.checkpoint} {
		one, err := lock(path, unix.Flock)
		switch {
		case errors.Is(err, errNoLocks):
			say(err)
		case err != nil:
			return nil, errors.Join(err, unlock())
		default:
			held = append(held, one)
		}
	}
	return unlock, nil
}
