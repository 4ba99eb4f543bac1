package main

import (
	"fmt"
	"os"
	"path/filepath"

	"dynamiccl/cmd/internal/tracefile"
)

// named is a file and what the command line calls it.
type named struct{ what, path string }

// written are the files that a run makes.
func (o *options) written() []named {
	files := []named{{"--out", o.out}, {"--checkpoint", o.checkpoint}}
	if o.curve != "" {
		files = append(files, named{"--curve's table", o.curveFile("csv")}, named{"--curve's picture", o.curveFile("png")})
	}
	return files
}

// distinct refuses two names of one file where the run writes it: the one would replace the other, or be removed as it.
func (o *options) distinct() error {
	inputs, err := tracefile.Find(o.traces)
	if err != nil {
		return usage{fmt.Errorf("--traces: %w", err)}
	}
	if o.store != "" {
		inputs = append(inputs, o.store)
	}
	files := o.written()
	all := append(files, named{"the lock of --out", lockName(o.out)}, named{"the lock of --checkpoint", lockName(o.checkpoint)})
	for i, a := range all {
		for _, b := range all[:i] {
			if sameFile(a.path, b.path) {
				return usage{fmt.Errorf("%s and %s are the same file, %s: name two", b.what, a.what, a.path)}
			}
		}
		for _, in := range inputs {
			if sameFile(a.path, in) {
				return usage{fmt.Errorf("%s would overwrite %s, which is learned from: name another file", a.what, in)}
			}
		}
	}
	return nil
}

// sameFile reports whether two paths lead to one file, also to one that is not there yet.
func sameFile(a, b string) bool {
	a, b = target(a), target(b)
	dirA, nameA := filepath.Split(a)
	dirB, nameB := filepath.Split(b)
	return a == b || same(a, b) || nameA == nameB && same(dirA+".", dirB+".")
}

func same(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

// maxLinks is how many symbolic links Linux follows.
const maxLinks = 40

// target follows the links at the end of a path, also one to a file that is not there yet.
func target(path string) string {
	for range maxLinks {
		next, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(next) {
			dir, _ := filepath.Split(path)
			next = dir + next
		}
		path = next
	}
	return path
}
