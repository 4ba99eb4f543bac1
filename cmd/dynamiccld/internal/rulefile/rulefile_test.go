package rulefile

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/state"
)

func bucket(ranks, nodes int, c actions.Collective, log2 uint8, choice string, calls uint64) control.Bucket {
	return control.Bucket{Ranks: ranks, Nodes: nodes, Choice: choice, Calls: calls, Bucket: state.Bucket{Collective: c, Log2Bytes: log2}}
}

func TestRules(t *testing.T) {
	rules, err := Rules([]control.Bucket{
		bucket(16, 2, actions.AllReduce, 10, "Ring/Simple", 1),
		bucket(8, 1, actions.AllReduce, 10, "Ring/LL/4", 5),
		bucket(8, 1, actions.AllReduce, 11, "Ring/LL/4", 5),
		bucket(8, 1, actions.AllReduce, 10, "Tree/LL", 4),    // the same shape with fewer calls
		bucket(8, 1, actions.AllReduce, 12, "default", 1000), // no rule
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []actions.Rule{
		{Collective: actions.AllReduce, MinBytes: 1024, MaxBytes: 4095, Algorithm: actions.Ring, Protocol: actions.LL, Channels: 4, Nodes: 1, Ranks: 8, PipeOps: -1, RegBuff: -1},
		{Collective: actions.AllReduce, MinBytes: 1024, MaxBytes: 2047, Algorithm: actions.Ring, Protocol: actions.Simple, Nodes: 2, Ranks: 16, PipeOps: -1, RegBuff: -1},
	}
	if !reflect.DeepEqual(rules, want) {
		t.Errorf("got  %+v\nwant %+v", rules, want)
	}
}

func TestRulesRefuse(t *testing.T) {
	a, b := bucket(8, 1, actions.AllReduce, 10, "Ring/LL", 1), bucket(8, 1, actions.AllReduce, 11, "Ring/LL", 1)
	a.NCCLVersion = "2.30.7"
	if _, err := Rules([]control.Bucket{a, b}); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "--nccl-version") {
		t.Errorf("two versions: %v", err)
	}
	b.Choice = "default"
	if _, err := Rules([]control.Bucket{a, b}); err != nil {
		t.Errorf("a default of another version: %v", err)
	}
	b.Choice, a.NCCLVersion = "Ring/LL", ""
	for _, over := range [][2]string{{"socket", "rdma"}, {"", "nvlink"}} {
		a.Transport, b.Transport = over[0], over[1]
		if _, err := Rules([]control.Bucket{a, b}); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "--transport") ||
			!strings.Contains(err.Error(), "8 ranks on 1 nodes over ") || !strings.Contains(err.Error(), cmp.Or(over[0], "unknown")) {
			t.Errorf("transports %q: %v", over, err)
		}
	}
	b.Nodes = 2
	if _, err := Rules([]control.Bucket{a, b}); err != nil {
		t.Errorf("another transport of another shape: %v", err)
	}
	a.Transport, b.Transport, b.Nodes, b.Choice = "", "", 1, "default"
	if _, err := Rules([]control.Bucket{bucket(8, 1, actions.AllReduce, 10, "Bagel/LL", 1)}); !errors.Is(err, actions.ErrUnknownName) {
		t.Errorf("unknown action: %v", err)
	}
	if _, err := Rules([]control.Bucket{bucket(8, 1, actions.AllReduce, 10, "symmetric", 1)}); err == nil {
		t.Error("an action that the format cannot say")
	}
	if _, err := Rules([]control.Bucket{b, bucket(8, 1, actions.AllGather, 12, "lsa/oneshot/4", 1)}); err == nil ||
		!strings.Contains(err.Error(), "AllGather size bucket 12: lsa/oneshot/4 cannot be written") {
		t.Errorf("our own kernel: %v; want bucket and choice named", err)
	}
	if rules, err := Rules(nil); err != nil || rules == nil {
		t.Errorf("nothing: %v, %v", rules, err)
	}
}

func TestSayable(t *testing.T) {
	ours, ring, none := bucket(8, 1, actions.AllGather, 12, "lsa/oneshot/4", 1), bucket(8, 1, actions.AllReduce, 10, "Ring/LL", 1), bucket(8, 1, actions.AllReduce, 11, "default", 1)
	all := []control.Bucket{ours, ring, none}
	sayable, n := Sayable(all)
	if n != 1 || !reflect.DeepEqual(sayable, []control.Bucket{ring, none}) || !reflect.DeepEqual(all, []control.Bucket{ours, ring, none}) {
		t.Errorf("%d left out of %v: %v", n, all, sayable)
	}
	if rules, err := Rules(sayable); err != nil || len(rules) != 1 {
		t.Errorf("%v, %v", rules, err)
	}
}

func TestWriteIsWholeOrNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rules.csv")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (File{Rules: []actions.Rule{{MinBytes: 2, MaxBytes: 1}}}).Write(path); err == nil {
		t.Error("a bad rule was written")
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "old" {
		t.Errorf("the old file is gone: %q, %v", data, err)
	}
	if err := (File{}).Write(dir); err == nil {
		t.Error("a directory was replaced")
	}
	rules := []actions.Rule{{Collective: actions.AllGather, MaxBytes: 9, Algorithm: actions.Ring, Nodes: -1, Ranks: -1, PipeOps: 3, RegBuff: 1}}
	if err := (File{Rules: rules}).Write(path); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if back, err := Read(path, f, 1<<20); err != nil || !reflect.DeepEqual(back.Rules, rules) {
		t.Errorf("%+v, %v", back, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, text := range map[string]string{"nothing": "# only a comment\n", "bad": "allreduce,1\n", "too large": strings.Repeat("#\n", 600)} {
		if got, err := Read(name, strings.NewReader(text), 1000); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
