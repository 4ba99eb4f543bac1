package curves

import (
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/compare"
)

func TestRegretDrawsOnePictureAScenario(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	blocks := []compare.Block{
		{Trace: "../a b", Condition: "quiet->load", Lines: []compare.Line{{Learner: "ucb", Curve: []float64{1, 2, 2.5}}, {Learner: "oracle", Knows: true, Curve: []float64{0, 0, 0}}}},
		{Trace: "flat", Condition: "quiet", Lines: []compare.Line{{Learner: "oracle", Knows: true, Curve: []float64{0}}}},
	}
	if err := Folder(dir); err != nil {
		t.Fatal(err)
	}
	files, err := Regret(dir, blocks)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{filepath.Join(dir, "_a_b_quiet-to-load.png"), filepath.Join(dir, "flat_quiet.png")}; !slices.Equal(files, want) {
		t.Errorf("%q", files)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		img, err := png.Decode(f)
		if err != nil || img.Bounds().Dx() < 400 {
			t.Errorf("%s: %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".regret-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestRegretSaysWhereItCannotWrite(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Folder(file); err == nil {
		t.Error("a file is no folder")
	}
	one := []compare.Block{{Trace: "a", Lines: []compare.Line{{Curve: []float64{1}}}}}
	if _, err := Regret(file, one); err == nil {
		t.Error("wrote into a file as a folder")
	}
}
