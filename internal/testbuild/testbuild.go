// Package testbuild builds C programs and libraries for the tests of a package. Everything is compiled once, whichever packages
// want it and whatever `make` has compiled already; but tests never run files that somebody else is building.
package testbuild

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// Main is a TestMain: it makes the directories, each with a Makefile that takes BIN and LIB, into *build, runs the tests, looks
// for goroutines that are left, and removes *build. "DIRECTORY TARGET" makes another target than all.
func Main(m *testing.M, build *string, what ...string) {
	code, err := run(m, build, what)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Objects has what the directory's Makefile has in its BUILD.
func Objects(build, dir string) string { return filepath.Join(build, "obj", filepath.Base(dir)) }

func run(m *testing.M, build *string, what []string) (code int, err error) {
	root, err := checkout()
	if err != nil {
		return 1, err
	}
	cache := filepath.Join(root, ".cache")
	if err = os.MkdirAll(cache, 0o755); err != nil {
		return 1, err
	}
	removeStale(cache)
	if *build, err = os.MkdirTemp(cache, fmt.Sprintf("test-%d-", os.Getpid())); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(*build)) }()
	if err = makeAll(cache, *build, what); err != nil {
		return 1, err
	}
	// Such tests wait for processes more than they compute. Who runs them may say -parallel, which is read later.
	if err = flag.Set("test.parallel", "4"); err != nil {
		return 1, err
	}
	if code = m.Run(); code == 0 {
		err = goleak.Find()
	}
	return code, err
}

// removeStale deletes what tests that were killed left.
func removeStale(cache string) {
	left, _ := filepath.Glob(filepath.Join(cache, "test-*"))
	for _, folder := range left {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(folder), "test-%d-", &pid); err == nil && unix.Kill(pid, 0) == unix.ESRCH {
			_ = os.RemoveAll(folder)
		}
	}
}

// checkout is the module's folder.
func checkout() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, found := os.Stat(filepath.Join(dir, "go.mod")); found == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("no go.mod in any folder above")
		}
		dir = filepath.Dir(dir)
	}
	return "", err
}

// makeAll makes into folders of the checkout that all packages' tests and `make` share, one at a time (the Makefile at the top takes
// the same lock), and links what is there into build: what is made anew later is another file.
func makeAll(cache, build string, what []string) error {
	lock, err := os.OpenFile(filepath.Join(cache, "build.lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := ignoringEINTR(func() error { return unix.Flock(int(lock.Fd()), unix.LOCK_EX) }); err != nil {
		return fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	for _, w := range what {
		dir, target, _ := strings.Cut(w, " ")
		name := filepath.Base(dir)
		made := filepath.Join(cache, "test", name) // what packages make of other folders must not be there for this one
		if err := os.MkdirAll(made, 0o755); err != nil {
			return err
		}
		cmd := exec.Command("make", "-s", "-j2", "-C", dir, "BIN="+made, "LIB="+made, cmp.Or(target, "all"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("make -C %s: %w\n%s", dir, err, out)
		}
		if err := errors.Join(link(filepath.Join(cache, name), Objects(build, dir)), link(made, build)); err != nil {
			return err
		}
	}
	return nil
}

func ignoringEINTR(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// link gives each file in from, and in folders of it, a second name in to.
func link(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		}
		return os.Link(path, filepath.Join(to, name))
	})
}
