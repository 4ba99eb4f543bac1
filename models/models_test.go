package models

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
	"dynamiccl/tuner/tunersim"
)

func TestEveryNameIsMade(t *testing.T) {
	task := agents.Task{Set: []actions.Action{actions.Default, {Path: actions.PathCollective, Algorithm: actions.Ring, Channels: 8}},
		Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 16}}
	for _, name := range Names() {
		makeLearner, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		task.Rand = rand.New(rand.NewPCG(1, 1))
		if l := makeLearner(task); l.Name() != name {
			t.Errorf("learner %q calls itself %q", name, l.Name())
		}
	}
	if _, err := New(DefaultLearner); err != nil {
		t.Errorf("the default learner: %v", err)
	}
	_, err := New("gradient-free")
	if !errors.Is(err, agents.ErrUnknownLearner) {
		t.Fatalf("%v", err)
	}
	for _, name := range Names() {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%q does not offer %q", err, name)
		}
	}
}

// A file's policy takes the place of the shipped one, and nothing but a policy file is taken.
func TestOpen(t *testing.T) {
	write := func(data []byte) string {
		file := filepath.Join(t.TempDir(), "p.dynp")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	own, err := agents.EncodePolicy(agents.RandomPolicyWeights(rand.New(rand.NewPCG(1, 1))), agents.PolicyCard{Name: "own", Horizon: 10})
	if err != nil {
		t.Fatal(err)
	}
	l, err := Open(write(own))
	if err != nil {
		t.Fatal(err)
	}
	if l.policy == nil {
		t.Error("the file's policy is not used")
	}
	for _, name := range Names() {
		if _, err := l.New(name); err != nil {
			t.Error(err)
		}
	}
	pipe := filepath.Join(t.TempDir(), "pipe") // a daemon would wait for its writer, and hear no SIGTERM
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	damaged := append([]byte(nil), own...)
	damaged[len(damaged)/2] ^= 1
	for name, c := range map[string]struct {
		file string
		want error
	}{
		"missing": {filepath.Join(t.TempDir(), "none"), fs.ErrNotExist},
		"foreign": {write([]byte("hello")), agents.ErrForeignPolicy},
		"empty":   {write(nil), agents.ErrForeignPolicy},
		"damaged": {write(damaged), agents.ErrPolicyDamaged},
		"pipe":    {pipe, agents.ErrForeignPolicy},
		"cut":     {write(own[:len(own)-1]), agents.ErrPolicyDamaged},
	} {
		if _, err := Open(c.file); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.file) || !strings.Contains(err.Error(), "dynamiccld train") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every policy of heldout/ decodes, is named after a recorded table, and its card says that this table was held out and
// lists it nowhere among its data.
func TestHeldOutPolicies(t *testing.T) {
	files, err := filepath.Glob("heldout/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".dynp")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, card, err := agents.DecodePolicy(data)
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		table := Recorded(t, name) // that it is named after
		// A card names tables by their files or by what was measured.
		title := fmt.Sprintf("%s NCCL %s %s %d nodes %s", table.Machine, table.NCCL, table.Shape.Transport, table.Shape.Nodes, table.Condition)
		isTable := func(s string) bool { return s == name || s == title }
		if held := strings.Trim(fmt.Sprint(card.Recipe["held_out"]), "[]"); !isTable(held) {
			t.Errorf("%s: its card holds out %q, not %q", file, held, title)
		}
		if len(card.Data) < 2 || slices.ContainsFunc(card.Data, isTable) {
			t.Errorf("%s: its card lists the data %q", file, card.Data)
		}
	}
}

// Recorded is a table of measurements.
func Recorded(t testing.TB, name string) *tunersim.Table {
	t.Helper()
	return TableIn(t, "../tuner/tunersim/testdata/measurements", name)
}

// TableIn is one of a folder's.
func TableIn(t testing.TB, folder, name string) *tunersim.Table {
	t.Helper()
	f, err := os.Open(filepath.Join(folder, name+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	table, err := tunersim.ReadTable(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return table
}
