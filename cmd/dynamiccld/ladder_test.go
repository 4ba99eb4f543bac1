package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// ladder is the package table of docs/design.md: what each package may import of ours.
var ladder = map[string][]string{
	"actions":           {},
	"state":             {"actions"},
	"agents":            {"actions", "state"},
	"tuner":             {"actions", "state", "agents"},
	"tuner/tunersim":    {"actions", "state", "agents", "tuner"},
	"tuner/store":       {"actions", "state", "agents", "tuner"},
	"nccltuner":         {"actions", "state"},
	"nccltuner/ranklog": {"actions", "state"},
	"models":            {"actions", "state", "agents"},
	"models/train":      {"actions", "state", "agents", "tuner/tunersim"},

	"cmd/dynamiccld-train": {"actions", "state", "agents", "tuner", "tuner/tunersim", "tuner/store", "models/train", "cmd/internal/tracefile", "cmd/internal/bar", "cmd/internal/ending", "cmd/internal/wholefile"},
	"cmd":                  {"tuner/tunersim"}, // cmd/internal: what both programs use

	"kernels/carriertest":           {},
	"internal/testbuild":            {}, // C programs and libraries for tests
	"internal/testrecord":           {}, // what was recorded of real runs, for tests
	"internal/testproc":             {}, // what is left of processes of tests
	"kernels/kernelstest":           {},
	"nccltuner/fakegputest":         {},
	"nccltuner/gputest/programtest": {},
	"nccltuner/harnesstest":         {},
	"nccltuner/plugintest":          {},
	"nccltuner/workertest":          {},
}

// pureImports is all that the core may import from the standard library: no clock, file, unsafe or randomness
// of its own (math/rand/v2 only as a type: sources are arguments).
var pureImports = []string{"bufio", "bytes", "cmp", "crypto/sha256", "encoding/binary", "encoding/csv", "encoding/json", "errors", "fmt", "io", "iter", "maps", "math", "math/bits",
	"math/rand/v2", "slices", "sort", "strconv", "strings"}

var pure = []string{"actions", "state", "agents", "tuner"}

type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
}

func listPackages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports", "dynamiccl/...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func TestImportLadder(t *testing.T) {
	seen := 0
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, "dynamiccl/")
		if name == "cmd/dynamiccld" || strings.HasPrefix(name, "cmd/dynamiccld/") {
			continue // all, but see TestDaemonIsNotLinkedWithGorgonia
		}
		if len(p.GoFiles) == 0 {
			continue // tests only
		}
		base, _, _ := strings.Cut(name, "/internal/")
		allowed, ok := ladder[base]
		if !ok {
			t.Errorf("package %s is not in the design's table: add it there and here, or move it", name)
			continue
		}
		seen++
		for _, imp := range p.Imports {
			if own, found := strings.CutPrefix(imp, "dynamiccl/"); found && !slices.Contains(allowed, own) && !strings.HasPrefix(own, base+"/internal/") {
				t.Errorf("%s imports %s: the ladder allows %v", name, own, allowed)
			}
			if slices.Contains(pure, name) && !strings.HasPrefix(imp, "dynamiccl/") &&
				!slices.Contains(pureImports, imp) && !(name == "agents" && strings.HasPrefix(imp, "gonum.org/")) {
				t.Errorf("%s is pure and imports %s", name, imp)
			}
		}
	}
	if seen < 9 {
		t.Fatalf("only %d packages checked: the ladder test does not see the module", seen)
	}
}

// gorgonia begins the import paths of the library that trains, and of what it needs.
const gorgonia = "gorgonia.org/"

// TestTrainingStaysApart allows gorgonia in one package, and that package in one program.
func TestTrainingStaysApart(t *testing.T) {
	trains := false
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, "dynamiccl/")
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, gorgonia) && name != "models/train" {
				t.Errorf("%s imports %s: only models/train may", name, imp)
			}
			if imp == "dynamiccl/models/train" && name != "cmd/dynamiccld-train" {
				t.Errorf("%s imports models/train: only cmd/dynamiccld-train may", name)
			}
			trains = trains || strings.HasPrefix(imp, gorgonia)
		}
	}
	if !trains {
		t.Error("nothing imports gorgonia: this test watches over nothing")
	}
}

// TestDaemonIsNotLinkedWithGorgonia: one of its dependencies (assume-no-moving-gc) panics in its init where it does not
// know the version of Go, and a daemon that does not start is worse than one that cannot train.
func TestDaemonIsNotLinkedWithGorgonia(t *testing.T) {
	for program, want := range map[string]bool{"dynamiccl/cmd/dynamiccld": false, "dynamiccl/cmd/dynamiccld-train": true} {
		out, err := exec.Command("go", "list", "-deps", program).Output()
		if err != nil {
			t.Fatalf("go list -deps %s: %v", program, err)
		}
		found := ""
		for _, dep := range strings.Fields(string(out)) {
			if strings.HasPrefix(dep, gorgonia) || strings.HasSuffix(dep, "assume-no-moving-gc") {
				found = dep
			}
		}
		if (found != "") != want {
			t.Errorf("%s depends on %q; want gorgonia: %v", program, found, want)
		}
	}
}

// TestCoreIsPure looks for goroutines and for the global functions of math/rand/v2 in the core's source, and in the
// simulator's, which is tested without the race detector, too.
func TestCoreIsPure(t *testing.T) {
	files := 0
	for _, p := range listPackages(t) {
		if name := strings.TrimPrefix(p.ImportPath, "dynamiccl/"); !slices.Contains(pure, name) && name != "tuner/tunersim" {
			continue
		}
		for _, f := range p.GoFiles {
			files++
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, f), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt:
					t.Errorf("%s: a goroutine in the core", fset.Position(n.Pos()))
				case *ast.SelectorExpr:
					if x, ok := n.X.(*ast.Ident); ok && x.Name == "rand" && x.Obj == nil &&
						!slices.Contains([]string{"Rand", "Source", "New", "NewPCG", "PCG", "ChaCha8", "NewChaCha8"}, n.Sel.Name) {
						t.Errorf("%s: rand.%s is global randomness", fset.Position(n.Pos()), n.Sel.Name)
					}
				}
				return true
			})
		}
	}
	if files < 8 {
		t.Fatalf("only %d files checked", files)
	}
}
