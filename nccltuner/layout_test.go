package nccltuner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/state"
)

// runC compiles a C program against abi.h and gives what it prints.
func runC(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	file, program := filepath.Join(dir, "main.c"), filepath.Join(dir, "main")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I.", "-o", program, file)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatalf("running the C program: %v", err)
	}
	return string(out)
}

// Three computations of the layout must agree: the C compiler's, the Go compiler's and the generator's.
func TestLayoutIsTheCompilers(t *testing.T) {
	var c, want strings.Builder
	c.WriteString("#include <stddef.h>\n#include <stdio.h>\n#include \"abi.h\"\n")
	c.WriteString("#define FIELD(s, f) printf(#s \".\" #f \" %zu %zu\\n\", offsetof(struct s, f), sizeof(((struct s *)0)->f))\n")
	c.WriteString("#define STRUCT(s) printf(#s \" %zu %zu\\n\", sizeof(struct s), _Alignof(struct s))\n")
	c.WriteString("#define INT(i) printf(#i \" %llu\\n\", (unsigned long long)i)\n#define STRING(s) printf(#s \" %s\\n\", s)\n")
	c.WriteString("int main(void) {\n")
	for _, s := range abiStructs {
		if s.size != s.wantSize {
			t.Errorf("%s: Go says %d bytes, the generator %d", s.cStruct, s.size, s.wantSize)
		}
		fmt.Fprintf(&c, "STRUCT(%s);\n", s.cStruct)
		fmt.Fprintf(&want, "%s %d %d\n", s.cStruct, s.size, s.align)
	}
	for _, f := range abiFields {
		if f.offset != f.wantOffset {
			t.Errorf("%s.%s: Go says offset %d, the generator %d", f.cStruct, f.cField, f.offset, f.wantOffset)
		}
		fmt.Fprintf(&c, "FIELD(%s, %s);\n", f.cStruct, f.cField)
		fmt.Fprintf(&want, "%s.%s %d %d\n", f.cStruct, f.cField, f.offset, f.size)
	}
	for name, value := range abiInts {
		fmt.Fprintf(&c, "INT(%s);\n", name)
		fmt.Fprintf(&want, "%s %d\n", name, value)
	}
	for name, value := range abiStrings {
		fmt.Fprintf(&c, "STRING(%s);\n", name)
		fmt.Fprintf(&want, "%s %s\n", name, value)
	}
	c.WriteString("return 0;\n}\n")
	got, expected := strings.Split(runC(t, c.String()), "\n"), strings.Split(want.String(), "\n")
	slices.Sort(got)
	slices.Sort(expected)
	if !slices.Equal(got, expected) {
		for i := range min(len(got), len(expected)) {
			if got[i] != expected[i] {
				t.Fatalf("C says %q, Go says %q", got[i], expected[i])
			}
		}
		t.Fatalf("C says %d lines, Go %d", len(got), len(expected))
	}
}

// Words that ranks and daemon write at the same time must not share a cache line with words of another writer.
func TestHotWordsHaveTheirOwnLines(t *testing.T) {
	lines := map[uintptr]string{}
	for _, f := range abiFields {
		switch f.cStruct + "." + f.cField {
		case "dyn_record.joined", "dyn_record.newest", "dyn_record.frontier", "dyn_record.changes", "dyn_record.plans":
			if other, taken := lines[f.offset/64]; taken {
				t.Errorf("%s shares a line with %s", f.cField, other)
			}
			lines[f.offset/64] = f.cField
		}
	}
	if len(lines) != 5 {
		t.Errorf("only %d of 5 words found: were fields renamed?", len(lines))
	}
}

// Numbers that abi.h states and the pure packages state too.
func TestNumbersAgree(t *testing.T) {
	for _, c := range []struct {
		name      string
		abi, pure int
	}{
		{"collectives", NumCollectives, actions.NumCollectives},
		{"buckets", NumBuckets, state.NumBuckets},
		{"default path", PathDefault, int(actions.PathDefault)},
		{"collective path", PathCollective, int(actions.PathCollective)},
		{"symmetric path", PathSymmetric, int(actions.PathSymmetric)},
		{"GIN's path", PathGin, int(actions.PathGIN)},
		{"GIN's flat bit", GinFlat, actions.GINFlat},
		{"room of a slot of GIN's", GinSlotBytes, actions.GINSlotBytes},
		{"marks", knownMarks, 1<<(actions.NumAlgorithms*actions.NumProtocols) - 1},
		{"trials of an entry", NumTrials, len(ABIEntry{}.Trials)},
		{"entries of a plan", NumEntries, len(ABIPlan{}.Entries)},
		{"plans of a record", NumPlans, len(ABIRecord{}.Plans)},
		{"changes of a record", NumChanges, len(ABIRecord{}.Changes)},
		{"action word", 1<<0 | 3<<ActionAlgoShift | 2<<ActionProtoShift | 24<<ActionChannelsShift,
			int(actions.Action{Path: actions.PathCollective, Algorithm: 3, Protocol: 2, Channels: 24}.Word())},
		{"action word of GIN", PathGin | (GinFlat|1)<<ActionContextsShift | BackendProxy<<ActionBackendShift | 2<<ActionChannelsShift,
			int(actions.Action{Path: actions.PathGIN, Backend: actions.BackendProxy, Channels: 2, Contexts: 1, Flat: true}.Word())},
	} {
		if c.abi != c.pure {
			t.Errorf("%s: abi.h says %d, the package %d", c.name, c.abi, c.pure)
		}
	}
	if 256%NumChanges != 0 {
		t.Error("a frontier holds its index modulo 256: the log's length must divide it")
	}
}

// The daemon's checksum and verdict are the ranks' own: plan.h is compiled and asked about plans that Go wrote.
func TestPlanChecksumIsTheRanks(t *testing.T) {
	spec := PlanSpec{SampleEvery: 4, Entries: []EntrySpec{
		{Bucket: state.Bucket{Collective: actions.AllReduce, Log2Bytes: 20}, ID: 7, Base: 0x180011, Trials: []uint32{0x111, 0x211}},
		{Bucket: state.Bucket{Collective: actions.Broadcast, Log2Bytes: 47}, ID: 1<<32 - 1},
	}}
	var c, want strings.Builder
	c.WriteString("#include <stdio.h>\n#include \"plugin/plan.h\"\n")
	c.WriteString("static void ask(uint64_t *words) { struct dyn_plan p; memcpy(&p, words, sizeof p);\n")
	c.WriteString("printf(\"%llu %d\\n\", (unsigned long long)dyn_plan_checksum(&p), dyn_plan_valid(&p)); }\n")
	c.WriteString("int main(void) {\n")
	for version := range uint64(5) {
		var p ABIPlan
		if err := encodePlan(&p, &spec); err != nil {
			t.Fatal(err)
		}
		p.Version = version << (14 * version)
		p.Checksum = planChecksum(&p)
		fmt.Fprintf(&want, "%d 1\n", p.Checksum)
		words := make([]string, planWords)
		for i, w := range p.words() {
			words[i] = strconv.FormatUint(w, 10) + "u"
		}
		fmt.Fprintf(&c, "{ static uint64_t w[] = {%s}; ask(w); w[100] ^= 1; ask(w); }\n", strings.Join(words, ","))
		p.words()[100] ^= 1
		fmt.Fprintf(&want, "%d 0\n", planChecksum(&p))
		spec.Entries = append(spec.Entries, EntrySpec{
			Bucket: state.Bucket{Collective: actions.Reduce, Log2Bytes: uint8(version)}, Trials: make([]uint32, NumTrials)})
	}
	c.WriteString("return 0;\n}\n")
	if got := runC(t, c.String()); got != want.String() {
		t.Errorf("C says\n%swant\n%s", got, want.String())
	}
}
