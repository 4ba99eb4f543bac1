package live

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/workers"
)

// standIns is where the stand-ins for NCCL and for CUDA's driver are.
func (r *rig) standIns() string {
	r.Helper()
	root, err := filepath.Abs(checkout)
	if err != nil {
		r.Fatal(err)
	}
	return filepath.Join(root, ".cache", "fakegpu")
}

// kernelsFile is one that the stand-in for CUDA takes for our kernels.
func (r *rig) kernelsFile() string {
	r.Helper()
	file := filepath.Join(r.tmp, "kernels.fatbin")
	if err := os.WriteFile(file, []byte{0x50, 0xed, 0x55, 0xba}, 0o600); err != nil { // all that it looks at
		r.Fatal(err)
	}
	return file
}

// programEnv is the environment of a program that calls the stand-in for NCCL under these libraries, with the daemon's directory.
func (r *rig) programEnv(preload, table string) []string {
	r.Helper()
	fake := r.standIns()
	return []string{"LD_LIBRARY_PATH=" + fake, "LD_PRELOAD=" + preload, "PATH=" + os.Getenv("PATH"),
		"FAKEGPU_TABLE=" + table, "FAKEGPU_OPTIONS=--nccl 2.28.9", "FAKEGPU_DIR=" + r.tmp, "DYNAMICCL_KERNELS=" + r.kernelsFile(), "DYNAMICCL_SCRATCH_MIB=8",
		"NCCL_TUNER_PLUGIN=" + r.build.Tuner(), "NCCL_PROFILER_PLUGIN=" + r.build.Profiler(), "DYNAMICCL_DIR=" + r.daemon.Dir, "TMPDIR=" + r.tmp}
}

// workers starts rank processes that call the stand-in for NCCL under the preload library, with the daemon's directory, and makes their
// communicator. The caller closes them.
func (r *rig) workers(spec workers.Spec, table string, environ ...string) *workers.Group {
	r.Helper()
	fake := r.standIns()
	spec.Program, spec.Logs = cmp.Or(spec.Program, filepath.Join(fake, "..", "..", "bin", "dynamiccl-worker")), r.tmp
	spec.Environ = append([]string{"LD_LIBRARY_PATH=" + fake, "LD_PRELOAD=" + filepath.Join(r.build.Lib, "libdynamiccl.so") + ":" + filepath.Join(fake, "libnccl.so.2"),
		"FAKEGPU_TABLE=" + table, "NCCL_TUNER_PLUGIN=" + r.build.Tuner(), "NCCL_PROFILER_PLUGIN=" + r.build.Profiler(),
		"DYNAMICCL_DIR=" + r.daemon.Dir, "TMPDIR=" + r.tmp}, environ...)
	group, err := workers.Start(spec)
	if err != nil {
		r.Fatal(err)
	}
	if _, err := group.Init(r.Context(), time.Minute); err != nil {
		r.Fatal(errors.Join(err, group.Close(context.Background())))
	}
	return group
}
