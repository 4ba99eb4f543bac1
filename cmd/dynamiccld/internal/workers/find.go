package workers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Name is the program of a rank.
const Name = "dynamiccl-worker"

// askTime bounds what is asked of other programs.
const askTime = 20 * time.Second

// FindProgram gives the worker that stands beside executable.
func FindProgram(executable string) (string, error) {
	path := filepath.Join(filepath.Dir(executable), Name)
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not there; build it with `make`, or name it with --worker", path)
	}
	return path, nil
}

// CountGPUs says how many GPUs CUDA shows: CUDA_VISIBLE_DEVICES, else what nvidia-smi lists.
func CountGPUs(ctx context.Context, getenv func(string) string) (int, error) {
	if list := getenv("CUDA_VISIBLE_DEVICES"); list != "" {
		n := 0
		for _, device := range strings.Split(list, ",") {
			if device = strings.TrimSpace(device); device == "" || device == "-1" {
				break // CUDA shows those before it
			}
			n++
		}
		if n == 0 {
			return 0, fmt.Errorf("CUDA_VISIBLE_DEVICES=%s hides all GPUs; unset it, or name those to use", list)
		}
		return n, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nvidia-smi", "-L").Output()
	if err != nil {
		return 0, fmt.Errorf("counting GPUs with `nvidia-smi -L`: %w; this needs NVIDIA GPUs and their driver (or give --ranks)", withStderr(err))
	}
	n := 0
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "GPU ") {
			n++
		}
	}
	if n == 0 {
		return 0, errors.New("`nvidia-smi -L` lists no GPU; this needs NVIDIA GPUs")
	}
	return n, nil
}

// withStderr adds what a program that failed said.
func withStderr(err error) error {
	if exit := new(exec.ExitError); errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}

// PythonNCCL gives the libnccl.so.2 of the Python package nvidia.nccl, which PyTorch brings along.
func PythonNCCL(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	out, err := exec.CommandContext(ctx, "python3", "-c", "import nvidia.nccl as n; print(list(n.__path__)[0])").Output()
	if err != nil {
		return "", errors.New("python3 has no package nvidia.nccl")
	}
	path := filepath.Join(strings.TrimSpace(string(out)), "lib", "libnccl.so.2")
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	return path, nil
}
