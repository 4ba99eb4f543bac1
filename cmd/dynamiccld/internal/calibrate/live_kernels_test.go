package calibrate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Without the kernels that the user wants NCCL's alone are measured, which ranks say where nobody reads it: it is a warning, once to people
// and once in the JSON, and nothing where kernels can be had or are left out on purpose.
func TestLiveRefusedKernels(t *testing.T) {
	for _, c := range []struct {
		name, text string // of the file that is there
		named      string // DYNAMICCL_KERNELS; "": that beside the plugin
		more, says string
	}{
		{"beside", "garbage", "", "", "lib/dynamiccl-kernels.fatbin is no fatbin of kernels"},
		{"beside and empty", "", "", "", "lib/dynamiccl-kernels.fatbin is no fatbin of kernels (it has 0 bytes"},
		{"named", "garbage", "lib/dynamiccl-kernels.fatbin", "", "DYNAMICCL_KERNELS names lib/dynamiccl-kernels.fatbin, which is no fatbin of kernels"},
		{"gone", "garbage", "/nope", "", "DYNAMICCL_KERNELS names /nope, which cannot be read"},
		{"left out", "garbage", "/nope", "DYNAMICCL_NO_KERNELS=1", ""},
		{"usable", "\x50\xed\x55\xba", "", "", ""},
	} {
		h := newHost(t, "h200x4-nvlink-quiet", "DYNAMICCL_NO_KERNELS=", "FAKEGPU_OPTIONS=--nccl 2.28.9", "DYNAMICCL_SCRATCH_MIB=8", "DYNAMICCL_KERNELS="+c.named, c.more)
		if err := os.CopyFS(h.path("lib"), os.DirFS(filepath.Join(h.root, "lib"))); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(h.path("lib/dynamiccl-kernels.fatbin"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r, said, code := h.calibrate("--ranks", "4", "--collectives", "AllReduce", "--min", "1K", "--max", "1K", "--budget", "6s", "--plugin-dir", "lib")
		if code != 0 || len(r.Shapes) != 1 {
			t.Fatalf("%s: exit code %d, %+v\n%s", c.name, code, r, said)
		}
		warned := 0
		for _, text := range r.Warnings { // the machine may be not idle, too
			if strings.Contains(text, "ranks have none of our kernels") && strings.Contains(text, c.says) && strings.Contains(text, "`make kernels`") {
				warned++
			}
		}
		want := 1
		if c.says == "" {
			want = 0
		}
		if warned != want || strings.Count(said, "ranks have none of our kernels") != want || !strings.Contains(said, c.says) {
			t.Errorf("%s: %d warnings, want %d: %q\n%s", c.name, warned, want, r.Warnings, said)
		}
		h.alone()
	}
}
