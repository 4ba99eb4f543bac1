package live

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/workers"
)

// Where NCCL has not loaded the plugin that a program is to have, the preload library says so, once, by rank 0; where NCCL's log does, it does not.
// Where it has, and the library is not there, the plugin does, on the rank that joined first.
func TestPluginThatNCCLDoesNotLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	missing := filepath.Join(r.tmp, "libnccl-tuner-dynamiccl.so")
	old := "FAKEGPU_OPTIONS=--nccl 2.20.5"
	replaced := "LD_PRELOAD=" + filepath.Join(r.standIns(), "libnccl.so.2") // as by a launcher that hands on NCCL's variables, or puts another library there
	half := "libdynamiccl.so is not in this process: a daemon's stored choices are used, nothing is measured and no kernel of ours runs; "
	for _, tc := range []struct {
		name string
		env  []string
		says string
	}{
		{"loaded", nil, ""},
		{"no file", []string{"NCCL_TUNER_PLUGIN=" + missing}, "NCCL_TUNER_PLUGIN=" + missing + " cannot be read: running plain NCCL; `make plugin` builds it"},
		{"no such name", []string{"NCCL_TUNER_PLUGIN=dynamiccl"}, "NCCL has not loaded NCCL_TUNER_PLUGIN=libnccl-tuner-dynamiccl.so: running plain NCCL; NCCL_DEBUG=INFO says why"},
		{"old NCCL", []string{old}, "NCCL 2.20.5 loads no tuner plugin like " + r.build.Tuner() + ": running plain NCCL; tuning needs NCCL 2.28, or 2.27"},
		{"NCCL's log says it", []string{old, "NCCL_DEBUG=INFO"}, ""},
		{"quiet", []string{old, "DYNAMICCL_QUIET=1"}, ""},
		{"another tuner", []string{"NCCL_TUNER_PLUGIN=" + filepath.Join(r.tmp, "libother.so")}, ""},
		{"no tuner", []string{"NCCL_TUNER_PLUGIN=none"}, ""},
		{"no preload library", []string{replaced}, half},
		{"a preload library that is not there", []string{replaced + ":" + filepath.Join(r.tmp, "libdynamiccl.so")}, "libdynamiccl.so is in LD_PRELOAD and this NCCL cannot see it: "},
		{"no preload library, quiet", []string{replaced, "DYNAMICCL_QUIET=1"}, ""},
		{"no preload library, NCCL's log says it", []string{replaced, "NCCL_DEBUG=WARN"}, ""},
	} {
		group := r.workers(workers.Spec{Ranks: 2, Nodes: 1, MaxBytes: 4096}, r.build.Table("h200x2-nvlink-quiet"), tc.env...)
		if err := group.Close(context.Background()); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		said := ""
		logs, err := filepath.Glob(filepath.Join(r.tmp, "rank*.log"))
		if err != nil {
			t.Fatal(err)
		}
		for _, log := range logs {
			text, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			said += string(text)
			if err := os.Remove(log); err != nil {
				t.Fatal(err)
			}
		}
		lines := strings.Count(said, "dynamiccl: ")
		if tc.says == "" && lines != 0 || tc.says != "" && (lines != 1 || !strings.Contains(said, "dynamiccl: "+tc.says)) {
			t.Errorf("%s: %d lines, want %q:\n%s", tc.name, lines, tc.says, said)
		}
	}
}
