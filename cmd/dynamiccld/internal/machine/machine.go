// Package machine says under which names choices are stored: those of the machine, its GPUs and its NCCL. Whoever looks
// choices up and whoever stores them must say the same.
package machine

import (
	"bufio"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Name gives what choices depend on beside the communicator: GPUs and NICs. root is the file system ("/").
// A machine without GPUs (a laptop, CI) is a shape of its own, so that what a harness learned never reaches a GPU job.
func Name(root fs.FS) string {
	gpus := gpuModels(root)
	shape := "no GPU"
	if len(gpus) > 0 {
		slices.Sort(gpus)
		var parts []string
		for i := 0; i < len(gpus); {
			j := i
			for j < len(gpus) && gpus[j] == gpus[i] {
				j++
			}
			parts = append(parts, fmt.Sprintf("%dx %s", j-i, gpus[i]))
			i = j
		}
		shape = strings.Join(parts, " + ")
	}
	nics, err := fs.ReadDir(root, "sys/class/infiniband")
	if err != nil {
		return shape + ", 0 NICs" // no RDMA subsystem
	}
	return fmt.Sprintf("%s, %d NICs", shape, len(nics))
}

// architectures by what a model's name contains (NVIDIA's CUDA GPUs page, compute capability).
var architectures = []struct{ model, arch string }{
	{"GB300", "sm_103"}, {"B300", "sm_103"}, {"GB200", "sm_100"}, {"B200", "sm_100"}, {"B100", "sm_100"},
	{"GH200", "sm_90"}, {"H200", "sm_90"}, {"H100", "sm_90"}, {"H800", "sm_90"}, {"H20", "sm_90"},
	{"L40", "sm_89"}, {"L4", "sm_89"}, {"RTX 4090", "sm_89"}, {"A100", "sm_80"}, {"A800", "sm_80"}, {"A30", "sm_80"},
	{"A40", "sm_86"}, {"A10", "sm_86"}, {"T4", "sm_75"}, {"V100", "sm_70"},
}

// Architecture is that of all GPUs; "" when there are none, when they differ, or when the model is not known here.
func Architecture(root fs.FS) string {
	found := ""
	for _, model := range gpuModels(root) {
		arch := ""
		for _, a := range architectures {
			if strings.Contains(model, a.model) {
				arch = a.arch
				break
			}
		}
		if arch == "" || found != "" && arch != found {
			return ""
		}
		found = arch
	}
	return found
}

// gpuModels reads the model lines of the NVIDIA driver: /proc/driver/nvidia/gpus/*/information.
func gpuModels(root fs.FS) []string {
	files, err := fs.Glob(root, "proc/driver/nvidia/gpus/*/information")
	if err != nil {
		return nil
	}
	var models []string
	for _, name := range files {
		f, err := root.Open(name)
		if err != nil {
			continue
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "Model" {
				models = append(models, strings.TrimSpace(value))
			}
		}
		f.Close()
	}
	return models
}
