package wholefile

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What is no plain file stays what it is: a rename onto a device would take it from the whole machine.
func TestOnlyPlainFilesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	pipe, folder := filepath.Join(dir, "pipe"), filepath.Join(dir, "folder")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link") // as /dev/stdout is one
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]fs.FileMode{pipe: fs.ModeNamedPipe, folder: fs.ModeDir, link: fs.ModeSymlink} {
		err := Write(path, []byte("x"))
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "not a plain file") {
			t.Errorf("%s: %v", path, err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode().Type() != kind {
			t.Errorf("%s was replaced: %v, %v", path, info.Mode(), err)
		}
	}
	left(t, dir, 3)
}

// A link to a file stays a link.
func TestLinksAreFollowed(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	for _, text := range []string{"one", "two"} {
		if err := Write(file, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("file", link); err != nil {
		t.Fatal(err)
	}
	if err := Write(link, []byte("three")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil || string(text) != "three" {
		t.Errorf("%q, %v", text, err)
	}
	if info, err := os.Lstat(file); err != nil || info.Mode() != 0o644 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if err := Write(filepath.Join(dir, "missing", "file"), nil); err == nil || !strings.Contains(err.Error(), "no such file or directory; name a file") {
		t.Error(err)
	}
	left(t, dir, 2)
}

func left(t *testing.T, dir string, want int) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) != want {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
