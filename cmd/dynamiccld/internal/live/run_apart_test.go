package live

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// statusOf is a line of a process's status, as the kernel has it.
func (r *runRig) statusOf(pid int, field string) string {
	r.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		r.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n"+field+":")
	value, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(value)
}

// What a launcher does to one rank is not done to the daemon that its run starts, which serves the others, too (launch/apart.go).
func TestDaemonIsNotConfined(t *testing.T) {
	t.Parallel()
	r := newRunRig(t)
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	one := 0
	for !cpus.IsSet(one) {
		one++
	}
	if _, err := exec.LookPath("taskset"); err != nil {
		t.Skip(err)
	}
	p := r.command("taskset", "-c", fmt.Sprint(one), "nice", "-n", "7", "env", "--block-signal=SIGTERM", "--ignore-signal=SIGINT", "sh", "-c", "umask 022; ulimit -S -f 4000; ulimit -S -t 1000; exec "+r.build.Daemon+" run -- sh -c 'umask; cat'")
	p.Dir = r.tmp
	stdin, err := p.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.begin()
	st := r.daemon("the run's daemon", anyDaemon)
	if is, was := r.statusOf(st.PID, "Cpus_allowed"), r.statusOf(p.Process.Pid, "Cpus_allowed"); cpus.Count() > 1 && is == was {
		t.Errorf("the daemon has the CPUs of one rank: %s", is)
	}
	if umask := r.statusOf(st.PID, "Umask"); umask != "0077" {
		t.Errorf("umask %s", umask)
	}
	for name, resource := range map[string]int{"CPU time": unix.RLIMIT_CPU, "size of files": unix.RLIMIT_FSIZE} {
		var limit unix.Rlimit
		if err := unix.Prlimit(st.PID, resource, nil, &limit); err != nil || limit.Cur != limit.Max {
			t.Errorf("%s: %+v, %v", name, limit, err)
		}
	}
	if dir, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", st.PID)); err != nil || dir != "/" {
		t.Errorf("its directory is %s, %v", dir, err)
	}
	if nice, err := unix.SchedGetAttr(st.PID, 0); err != nil || os.Geteuid() == 0 && nice.Nice != 0 {
		t.Errorf("%+v, %v", nice, err)
	}
	// The command has what it was given.
	if is := r.statusOf(p.Process.Pid, "Cpus_allowed_list"); is != fmt.Sprint(one) {
		t.Errorf("the run is on CPUs %s", is)
	}
	r.signal(st.PID, syscall.SIGTERM)
	r.wait("the end of a daemon whose run had SIGTERM blocked", func() bool { return r.gone(st.PID) })
	stdin.Close()
	if code := p.end(); code != 0 || strings.TrimSpace(p.out.String()) != "0022" {
		t.Errorf("exit code %d, the command's umask %q\n%s", code, p.out.String(), p.err.String())
	}
}
