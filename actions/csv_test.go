package actions

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func anyRule() *rapid.Generator[Rule] {
	return rapid.Custom(func(t *rapid.T) Rule {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		some := func(name string) int {
			return rapid.OneOf(rapid.Just(Any), rapid.IntRange(1, math.MaxInt32)).Draw(t, name)
		}
		return Rule{
			Collective: Collective(rapid.IntRange(0, NumAsked-1).Draw(t, "collective")),
			MinBytes:   min(a, b),
			MaxBytes:   max(a, b),
			Algorithm:  Algorithm(rapid.IntRange(0, NumAlgorithms-1).Draw(t, "algorithm")),
			Protocol:   Protocol(rapid.IntRange(0, NumProtocols-1).Draw(t, "protocol")),
			Channels:   rapid.IntRange(Any, 255).Draw(t, "channels"),
			Nodes:      some("nodes"),
			Ranks:      some("ranks"),
			PipeOps:    some("pipeOps"),
			RegBuff:    rapid.IntRange(Any, 1).Draw(t, "regBuff"),
		}
	})
}

func TestCSVRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(anyRule(), 0, 20).Draw(t, "rules")
		var b bytes.Buffer
		if err := WriteNCCLCSV(&b, rules); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if len(line) > csvMaxLine {
				t.Fatalf("line of %d bytes falls apart in NCCL's reader: %s", len(line), line)
			}
		}
		back, err := ReadNCCLCSV(&b)
		if err != nil || !slices.Equal(back, rules) {
			t.Fatalf("%v\nread back as %v, %v", rules, back, err)
		}
	})
}

// The shapes of line that NCCL's README and sample file use.
func TestReadsNCCLsForms(t *testing.T) {
	const text = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff\n" +
		"# 10 fields, 9 fields, 8 fields\r\n" +
		"allreduce,0,65536,tree,simple,2,1,-1,-1,1\n" +
		"broadcast,32769,4294967295,ring,ll128,-1,-1,-1,1\n" +
		"\n  \t\n" +
		" allgather , 0 ,4294967295,\tnvls_tree,simple,4,2,16 \r\n" +
		"reduce,1,2,collnet_chain,ll,0,-1,-1,,\n" +
		"reducescatter,1,18446744073709551615,pat,simple,-1,-1,-1,-1,-1"
	want := []Rule{
		{AllReduce, 0, 65536, Tree, Simple, 2, 1, Any, Any, 1},
		{Broadcast, 32769, 4294967295, Ring, LL128, Any, Any, Any, 1, Any},
		{AllGather, 0, 4294967295, NVLSTree, Simple, 4, 2, 16, Any, Any},
		{Reduce, 1, 2, CollnetChain, LL, 0, Any, Any, Any, Any},
		{ReduceScatter, 1, math.MaxUint64, PAT, Simple, Any, Any, Any, Any, Any},
	}
	got, err := ReadNCCLCSV(strings.NewReader(text))
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v, %v", got, err)
	}
}

func TestReadRejects(t *testing.T) {
	const good = "allreduce,0,1,ring,simple,1,-1,-1,-1,-1"
	for _, c := range []struct {
		name, line, field string
		kind              error
	}{
		{"collective", "alltoall,0,1,ring,simple,1,-1,-1", "collective_type", ErrUnknownName},
		{"case, as NCCL compares", "AllReduce,0,1,ring,simple,1,-1,-1", "collective_type", ErrUnknownName},
		{"byte order mark", "\ufeffallreduce,0,1,ring,simple,1,-1,-1", "collective_type", ErrUnknownName},
		{"algorithm", "allreduce,0,1,TREE,simple,1,-1,-1", "algorithm", ErrUnknownName},
		{"our spelling", "allreduce,0,1,nvlstree,simple,1,-1,-1", "algorithm", ErrUnknownName},
		{"protocol", "allreduce,0,1,ring,ll256,1,-1,-1", "protocol", ErrUnknownName},
		{"negative bytes", "allreduce,-1,1,ring,simple,1,-1,-1", "min_bytes", ErrBadRule},
		{"bytes with a unit", "allreduce,0,64K,ring,simple,1,-1,-1", "max_bytes", ErrBadRule},
		{"more than 64 bits", "allreduce,0,18446744073709551616,ring,simple,1,-1,-1", "max_bytes", ErrBadRule},
		{"empty range", "allreduce,2,1,ring,simple,1,-1,-1", "max_bytes", ErrBadRule},
		{"channels", "allreduce,0,1,ring,simple,256,-1,-1", "channels", ErrBadRule},
		{"negative channels", "allreduce,0,1,ring,simple,-2,-1,-1", "channels", ErrBadRule},
		{"fraction", "allreduce,0,1,ring,simple,1.5,-1,-1", "channels", ErrBadRule},
		{"no nodes", "allreduce,0,1,ring,simple,1,0,-1", "nNodes", ErrBadRule},
		{"no ranks", "allreduce,0,1,ring,simple,1,-1,0", "nRanks", ErrBadRule},
		{"beyond int", "allreduce,0,1,ring,simple,1,-1,2147483648", "nRanks", ErrBadRule},
		{"pipe operations", "allreduce,0,1,ring,simple,1,-1,-1,-2", "numPipeOps", ErrBadRule},
		{"regBuff", "allreduce,0,1,ring,simple,1,-1,-1,-1,2", "regBuff", ErrBadRule},
		{"NaN", "allreduce,0,1,ring,simple,NaN,-1,-1", "channels", ErrBadRule},
		{"too few", "allreduce,0,1,ring,simple,1,-1", "", ErrBadRule},
		{"too many", good + ",1", "", ErrBadRule},
		{"too many and empty", good + ",", "", ErrBadRule},
		{"empty in the middle", "allreduce,0,1,ring,simple,1,,-1,-1", "nNodes", ErrBadRule},
		{"empty before the last", "allreduce,0,1,ring,simple,1,-1,-1,,1", "numPipeOps", ErrBadRule},
		{"indented comment", " # a comment", "", ErrBadRule},
		{"line longer than NCCL's buffer", good + strings.Repeat(" ", 250), "", ErrBadRule},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules, err := ReadNCCLCSV(strings.NewReader("# first\n" + good + "\n" + c.line + "\n"))
			var at *CSVError
			if !errors.As(err, &at) || !errors.Is(err, c.kind) || rules != nil {
				t.Fatalf("%v, %v", rules, err)
			}
			if at.Line != 3 || at.Field != c.field {
				t.Fatalf("error at line %d, field %q, want line 3, field %q: %v", at.Line, at.Field, c.field, err)
			}
		})
	}
}

// failing is a disk that breaks.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestCSVErrorsOfTheDisk(t *testing.T) {
	broken := errors.New("broken disk")
	if _, err := ReadNCCLCSV(failing{broken}); !errors.Is(err, broken) {
		t.Errorf("reading: %v", err)
	}
	endless := "#" + strings.Repeat("x", 1<<17)
	var at *CSVError
	if _, err := ReadNCCLCSV(strings.NewReader("#\n" + endless)); !errors.As(err, &at) || at.Line != 2 {
		t.Errorf("a line without end: %v", err)
	}
	if err := WriteNCCLCSV(failing{broken}, nil); !errors.Is(err, broken) {
		t.Errorf("writing: %v", err)
	}
}

// A rule that cannot be read back is not written at all: a file cut off in the middle would look whole.
func TestWriteRejects(t *testing.T) {
	good := Rule{Collective: AllReduce, MaxBytes: 1, Channels: 1, Nodes: Any, Ranks: Any, PipeOps: Any, RegBuff: Any}
	for i, spoil := range []func(*Rule){
		func(r *Rule) { r.Collective = NumAsked },
		func(r *Rule) { r.Algorithm = NumAlgorithms },
		func(r *Rule) { r.Protocol = NumProtocols },
		func(r *Rule) { r.MinBytes = 2 },
		func(r *Rule) { r.Channels = 256 },
		func(r *Rule) { r.Nodes = 0 },
		func(r *Rule) { r.Ranks = -2 },
		func(r *Rule) { r.PipeOps = -2 },
		func(r *Rule) { r.RegBuff = 2 },
	} {
		bad := good
		spoil(&bad)
		var b bytes.Buffer
		err := WriteNCCLCSV(&b, []Rule{good, bad})
		if !errors.Is(err, ErrBadRule) || b.Len() != 0 {
			t.Errorf("%d: %v, %d bytes written", i, err, b.Len())
		} else if !strings.Contains(err.Error(), "rule 2") {
			t.Errorf("%d: %v does not say which rule", i, err)
		}
	}
}

func FuzzReadNCCLCSV(f *testing.F) {
	f.Add([]byte("# c\nallreduce,0,65536,tree,simple,2,1,-1,-1,1\n"))
	f.Add([]byte("allgather,0,4294967295,collnet_direct,ll128,4,2,-1\r\n\r\n"))
	f.Add([]byte("reduce,,1,ring,ll,1,-1,-1"))
	f.Add([]byte("broadcast,1,2,nvls,ll,1,-1,-1,,"))
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := ReadNCCLCSV(bytes.NewReader(data))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := WriteNCCLCSV(&b, rules); err != nil {
			t.Fatalf("read but cannot be written: %v", err)
		}
		if back, err := ReadNCCLCSV(&b); err != nil || !slices.Equal(back, rules) {
			t.Fatalf("%v read back as %v, %v", rules, back, err)
		}
		ChoicesFor(rules, 1, 8) // must end, whatever the ranges
	})
}
