package machine

import (
	"testing"
	"testing/fstest"
)

func TestName(t *testing.T) {
	info := func(model string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("Model: \t\t " + model + "\nIRQ:   \t\t 16\n")}
	}
	for _, tc := range []struct {
		name string
		fs   fstest.MapFS
		want string
		arch string
	}{
		{"nothing", fstest.MapFS{}, "no GPU, 0 NICs", ""},
		{"uniform", fstest.MapFS{
			"proc/driver/nvidia/gpus/0000:01:00.0/information": info("NVIDIA H200"),
			"proc/driver/nvidia/gpus/0000:02:00.0/information": info("NVIDIA H200"),
			"sys/class/infiniband/mlx5_0":                      &fstest.MapFile{}}, "2x NVIDIA H200, 1 NICs", "sm_90"},
		{"mixed", fstest.MapFS{
			"proc/driver/nvidia/gpus/a/information": info("NVIDIA L40S"),
			"proc/driver/nvidia/gpus/b/information": info("NVIDIA H200")}, "1x NVIDIA H200 + 1x NVIDIA L40S, 0 NICs", ""},
		{"garbage", fstest.MapFS{"proc/driver/nvidia/gpus/a/information": &fstest.MapFile{Data: []byte("\x00\xff no colon")}}, "no GPU, 0 NICs", ""},
		{"unknown model", fstest.MapFS{"proc/driver/nvidia/gpus/a/information": info("NVIDIA Z9")}, "1x NVIDIA Z9, 0 NICs", ""},
	} {
		if got := Name(tc.fs); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		if got := Architecture(tc.fs); got != tc.arch {
			t.Errorf("%s: architecture %q, want %q", tc.name, got, tc.arch)
		}
	}
}
