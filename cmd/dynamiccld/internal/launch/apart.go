package launch

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a daemon that other runs may join has of the run that starts it. mpirun, numactl and torchrun confine that to one rank's part of the
// machine, and the daemon serves all ranks:
//
//	CPUs, memory nodes          all that its cpuset has
//	nice value, scheduler       as processes begin with; a nice value that must not be lowered stays
//	umask                       077, so that it can read what it writes
//	soft limits                 raised to the hard ones: CPU time, memory, size of files; those on descriptors Go raises
//	session, open files         its own; none (start.go, inherited.go)
//	working directory           /, which keeps no file system busy
//	signals                     whatever was blocked or ignored, Go takes what serve asks for: SIGTERM, SIGINT, SIGHUP
//	LD_PRELOAD                  is not read: dynamiccld is linked statically
//	environment                 the run's: its settings are there, but for what it asks for its own program (environOf)
//	cgroup, namespaces          the run's: who counts or ends a job's processes is to find this one
//	OOM score                   the run's: a rank loses little with its daemon, and the host little with either

// apart calls start on a thread that is not confined as this process is. What it starts inherits that, and the thread ends.
func apart(start func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread goes with the goroutine
		everywhere()
		ended <- start()
	}()
	return <-ended
}

// everywhere is for the calling thread. What the kernel refuses stays as it is.
func everywhere() {
	var all [1024]byte // as many CPUs as any kernel has; of these it takes the cpuset's
	for i := range all {
		all[i] = 0xff
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_SETAFFINITY, 0, unsafe.Sizeof(all), uintptr(unsafe.Pointer(&all)))
	_, _, _ = unix.RawSyscall(unix.SYS_SET_MEMPOLICY, unix.MPOL_DEFAULT, 0, 0)
	normal := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	if unix.SchedSetAttr(0, &normal, 0) == nil {
		return
	}
	if is, err := unix.SchedGetAttr(0, 0); err == nil {
		normal.Nice = is.Nice
		_ = unix.SchedSetAttr(0, &normal, 0)
	}
}

// Settle does the rest of apart in the daemon itself, before it opens anything.
func Settle() {
	unix.Umask(0o077)
	for _, resource := range []int{unix.RLIMIT_CPU, unix.RLIMIT_AS, unix.RLIMIT_DATA, unix.RLIMIT_FSIZE} {
		var limit unix.Rlimit
		if unix.Getrlimit(resource, &limit) == nil && limit.Cur != limit.Max {
			limit.Cur = limit.Max
			_ = unix.Setrlimit(resource, &limit)
		}
	}
}
