package nccltuner

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestDirPath(t *testing.T) {
	runtime := t.TempDir()
	file := filepath.Join(runtime, "file")
	if err := os.WriteFile(file, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env        map[string]string
		euid       int
		want, fail string
	}{
		{nil, 0, "/run/dynamiccl", ""},
		{map[string]string{"XDG_RUNTIME_DIR": runtime}, 0, "/run/dynamiccl", ""},
		{map[string]string{"XDG_RUNTIME_DIR": runtime}, 7, runtime + "/dynamiccl", ""},
		{map[string]string{"XDG_RUNTIME_DIR": runtime + "/nobody-has-logged-in"}, 7, "/tmp/dynamiccl-7", ""},
		{map[string]string{"XDG_RUNTIME_DIR": file}, 7, "/tmp/dynamiccl-7", ""},
		{map[string]string{"XDG_RUNTIME_DIR": "."}, 7, "/tmp/dynamiccl-7", ""},
		{map[string]string{"XDG_RUNTIME_DIR": ""}, 7, "/tmp/dynamiccl-7", ""},
		{nil, 7, "/tmp/dynamiccl-7", ""},
		{map[string]string{"DYNAMICCL_DIR": "/a/b/", "XDG_RUNTIME_DIR": runtime}, 7, "/a/b", ""},
		{map[string]string{"DYNAMICCL_DIR": "/a"}, 0, "/a", ""},
		{map[string]string{"DYNAMICCL_DIR": ""}, 0, "/run/dynamiccl", ""},
		{map[string]string{"DYNAMICCL_DIR": "a/b"}, 0, "", "DYNAMICCL_DIR gives the relative path a/b"},
	} {
		got, err := DirPath(func(k string) string { return c.env[k] }, c.euid)
		if got != c.want || c.fail == "" && err != nil {
			t.Errorf("%v as %d: got %q, %v, want %q", c.env, c.euid, got, err, c.want)
		}
		if c.fail != "" && (!errors.Is(err, ErrDirectory) || !strings.HasPrefix(err.Error(), c.fail)) {
			t.Errorf("%v as %d: got error %v, want %s", c.env, c.euid, err, c.fail)
		}
	}
}

func openTestDir(t testing.TB) *Dir {
	t.Helper()
	d, err := OpenDir(filepath.Join(t.TempDir(), "dynamiccl"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // closed twice in some tests
	return d
}

func TestOpenDirMakesItPrivate(t *testing.T) {
	d := openTestDir(t)
	info, err := os.Lstat(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != os.ModeDir|0o700 {
		t.Errorf("mode %v, want drwx------", info.Mode())
	}
	again, err := OpenDir(d.Path() + "/")
	if err != nil {
		t.Fatalf("opening it again: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenDirRefuses(t *testing.T) {
	base := t.TempDir()
	path := func(name string) string { return filepath.Join(base, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(path("open"), 0o700))
	must(os.Chmod(path("open"), 0o755))
	must(os.Mkdir(path("real"), 0o700))
	must(os.Symlink(path("real"), path("link")))
	must(os.WriteFile(path("file"), nil, 0o600))
	for _, c := range []struct{ name, want string }{
		{"open", "has mode 0755, others could reach it; name one that nothing else uses, like " + path("open/dynamiccl") + ", or, if this is it, chmod 0700 " + path("open")},
		{"link", "no symbolic link is followed"},
		{"link/", "no symbolic link is followed"},
		{"file", "remove what is there, or set DYNAMICCL_DIR"},
		{"missing/dir", "make its parent, or set DYNAMICCL_DIR"},
	} {
		_, err := OpenDir(path(c.name))
		if !errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), base) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}

// Nobody is told to close what others need: the root, what all may make files in, and what has others' files.
func TestDirThatIsNotToBeClosed(t *testing.T) {
	base := t.TempDir()
	for name, tc := range map[string]struct {
		file   string
		mode   os.FileMode
		closed bool
	}{
		"empty":  {"", 0o755, true},
		"daemon": {DaemonLogName, 0o755, true},
		"ring":   {"ring-3-4.shm", 0o755, true},
		"sticky": {"", 0o777 | os.ModeSticky, false},
		"etc":    {"passwd", 0o755, false},
	} {
		path := filepath.Join(base, name)
		err := os.Mkdir(path, 0o700)
		if err == nil && tc.file != "" {
			err = os.WriteFile(filepath.Join(path, tc.file), nil, 0o600)
		}
		if err == nil {
			err = os.Chmod(path, tc.mode)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = OpenDir(path)
		if !errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), "name one that nothing else uses") || strings.Contains(err.Error(), "chmod") != tc.closed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if MayBeClosed("/") {
		t.Error("the root may be closed")
	}
}

// Where this user may make nothing there is nothing to be removed.
func TestOpenDirWithoutPermission(t *testing.T) {
	base := t.TempDir()
	if err := os.Chmod(base, 0o555); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // root may make files everywhere
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		unix.SetfsuidRetUid(65534)
		defer unix.SetfsuidRetUid(0)
	}
	_, err := OpenDir(filepath.Join(base, "new"))
	if !errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), "making it: permission denied; set DYNAMICCL_DIR to a directory of user") {
		t.Error(err)
	}
}

// A disk without room, and one that is mounted read-only: what cannot be made is named, with what to do about it.
func TestDirThatCannotBeWritten(t *testing.T) {
	base := t.TempDir()
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, "size=8k,mode=0700"); err != nil {
		t.Skipf("no tmpfs as root in a container that may mount alone: %v", err)
	}
	defer unix.Unmount(base, unix.MNT_DETACH)
	d, err := OpenDir(base)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	wants := func(what string, err error, words ...string) {
		t.Helper()
		for _, w := range append(words, "DYNAMICCL_DIR", base) {
			if !errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), w) {
				t.Errorf("%s: got %v, want an error with %q", what, err, w)
			}
		}
	}
	_ = os.WriteFile(filepath.Join(base, "ballast"), make([]byte, 8<<10), 0o600) // some of it does not fit
	wants("no room", d.Lock(), "writing daemon.lock: no space left on device", "free some space")
	if err := unix.Mount("", base, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	wants("the lock", d.Lock(), "read-only file system", "one that can be written")
	_, err = OpenDir(filepath.Join(base, "new"))
	wants("a new one", err, "making it: read-only file system; set DYNAMICCL_DIR")
}

// Another user's directory: the message names the path, both users and the remedy.
func TestCheckDirNamesBothUsers(t *testing.T) {
	err := checkDir("/some/dir", dirStatus{uid: 4294967000, perm: 0o700}, 4294967001)
	if !errors.Is(err, ErrDirectory) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"/some/dir", "user 4294967000", "user 4294967001", "DYNAMICCL_DIR", "as one user"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	for perm, good := range map[uint32]bool{0o700: true, 0o770: false, 0o701: false, 0o500: false, 0o2700: true} {
		if err := checkDir("/d", dirStatus{3, perm}, 3); (err == nil) != good {
			t.Errorf("mode %o: %v", perm, err)
		}
	}
}

// lockHelper makes a copy of this test program hold the lock of a directory until its input ends.
const lockHelper = "DYN_TEST_LOCK_DIR"

func TestMain(m *testing.M) {
	if path := os.Getenv(lockHelper); path != "" {
		d, err := OpenDir(path)
		if err == nil {
			err = d.Lock()
		}
		fmt.Println(err)
		_, _ = bufio.NewReader(os.Stdin).ReadByte() // the parent ends us by closing the pipe, or by a signal
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestSecondDaemonIsRefused(t *testing.T) {
	d := openTestDir(t)
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), lockHelper+"="+d.Path())
	stdin, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "<nil>\n" {
		t.Fatalf("the first daemon: %q, %v", line, err)
	}
	err = d.Lock()
	want := "served by process " + strconv.Itoa(holder.Process.Pid) + ";"
	if !errors.Is(err, ErrDirectoryInUse) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), d.Path()) {
		t.Errorf("got %v, want %s", err, want)
	}
	// Death, however sudden, gives the lock back.
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // reports the signal
	if err := d.Lock(); err != nil {
		t.Fatalf("after its death: %v", err)
	}
	if err := d.Lock(); err != nil {
		t.Errorf("locking twice: %v", err)
	}
	content, err := os.ReadFile(filepath.Join(d.Path(), "daemon.lock"))
	if err != nil || string(content) != fmt.Sprintf("%d\n%d\n%d\n", os.Getpid(), ABIVersion, pidNamespace()) {
		t.Errorf("daemon.lock holds %q, %v", content, err)
	}
	// The same process through another descriptor is a second daemon, too; after Close it is not.
	other, err := OpenDir(d.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Lock(); !errors.Is(err, ErrDirectoryInUse) {
		t.Errorf("second descriptor: %v", err)
	}
	if err := os.WriteFile(filepath.Join(d.Path(), "daemon.lock"), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := other.Lock(); !errors.Is(err, ErrDirectoryInUse) || !strings.Contains(err.Error(), "has not said its pid") {
		t.Errorf("lock without a pid: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := other.Lock(); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

// A rank that joins tries the lock for a moment, to see whether a daemon has it; that is no daemon.
func TestLockWhileARankLooks(t *testing.T) {
	d := openTestDir(t)
	fd, err := unix.Open(filepath.Join(d.Path(), "daemon.lock"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(fd, unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(5*time.Millisecond, func() { unix.Close(fd) })
	if err := d.Lock(); err != nil {
		t.Error(err)
	}
}

// A lock file that is a link must not be written through.
func TestLockFollowsNoLink(t *testing.T) {
	d := openTestDir(t)
	victim := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(victim, []byte("keep"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, filepath.Join(d.Path(), "daemon.lock")); err != nil {
		t.Fatal(err)
	}
	if err := d.Lock(); err == nil {
		t.Error("locked through a symbolic link")
	}
	if content, err := os.ReadFile(victim); err != nil || string(content) != "keep" {
		t.Errorf("victim holds %q, %v", content, err)
	}
}
