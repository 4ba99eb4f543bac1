package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The committed files must be what the generator writes now.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	dir := t.TempDir()
	code, table := filepath.Join(dir, "code.go"), filepath.Join(dir, "table.go")
	if err := run("../../abi.h", code, table, "nccltuner"); err != nil {
		t.Fatal(err)
	}
	for _, f := range []struct{ fresh, committed string }{{code, "../../abi_gen.go"}, {table, "../../abi_gen_test.go"}} {
		fresh, err := os.ReadFile(f.fresh)
		if err != nil {
			t.Fatal(err)
		}
		committed, err := os.ReadFile(f.committed)
		if err != nil {
			t.Fatal(err)
		}
		if string(fresh) != string(committed) {
			t.Errorf("%s is not what abi.h says now; run go generate ./nccltuner", f.committed)
		}
	}
}

const sample = `#ifndef DYN_X_H
#define DYN_X_H
#include <stdint.h>
/* How many. */
#define DYN_NUM 3
#define DYN_MAGIC 0x1F /* a note */
#define DYN_NAME "a /* b */ \"c\"" /* text */
/* Inner
 * struct. */
struct dyn_inner {
  uint8_t bytes[DYN_NUM]; /* three */
  int8_t last;
};
struct dyn_outer {
  struct dyn_inner rows[2][DYN_NUM];
  /* identity */
  uint64_t commId;
};
#endif
`

func TestGenerate(t *testing.T) {
	code, table, err := generate("x.h", sample, "p")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Num   = 3\n", "Magic = 0x1F              // a note", `Name  = "a /* b */ \"c\"" // text`,
		"// ABIInner is struct dyn_inner.\n//\n// Inner\n// struct.\ntype ABIInner struct {\n\t_     structs.HostLayout\n",
		"Bytes [3]uint8 // three", "Rows   [2][3]ABIInner", "CommID uint64 // identity",
	} {
		if !strings.Contains(string(code), want) {
			t.Errorf("code lacks %q:\n%s", want, code)
		}
	}
	for _, want := range []string{
		`{"dyn_outer", unsafe.Sizeof(ABIOuter{}), unsafe.Alignof(ABIOuter{}), 32},`,
		`{"dyn_outer", "commId", unsafe.Offsetof(ABIOuter{}.CommID), unsafe.Sizeof(ABIOuter{}.CommID), 24},`,
		`"DYN_MAGIC": Magic,`, `"DYN_NAME": Name,`,
	} {
		if !strings.Contains(string(table), want) {
			t.Errorf("table lacks %q:\n%s", want, table)
		}
	}
}

// What the generator does not know is an error that names the line.
func TestUnknownConstructs(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{"struct dyn_a {\n  int x;\n};", `x.h:2: type "int" is not supported`},
		{"struct dyn_a {\n  uint32_t *x;\n};", `x.h:2: character '*'`},
		{"struct dyn_a {\n  uint32_t x : 3;\n};", `x.h:2: character ':'`},
		{"struct dyn_a {\n  uint32_t x, y;\n};", `x.h:2: character ','`},
		{"struct dyn_a {\n  uint32_t x\n  uint32_t y;\n};", `x.h:3: "uint32_t" after field x`},
		{"struct dyn_a {\n  uint32_t x[DYN_N];\n};", `x.h:2: array size "DYN_N"`},
		{"#define DYN_S \"s\"\nstruct dyn_a {\n  uint32_t x[DYN_S];\n};", `x.h:3: array size "DYN_S"`},
		{"struct dyn_a {\n  uint32_t x[0];\n};", `x.h:2: array size "0"`},
		{"struct dyn_a {\n  uint32_t x[010];\n};", `x.h:2: array size "010"`},
		{"struct dyn_a {\n  uint32_t x[4;\n};", `x.h:2: ";" where "]" was expected`},
		{"struct dyn_a {\n  uint8_t x[1000000][1000000][1000];\n};", `x.h:2: field x is larger`},
		{"struct dyn_a {\n  uint32_t x;\n  uint64_t y;\n};", `x.h:3: 4 unnamed bytes before field y`},
		{"struct dyn_a {\n  uint64_t y;\n  uint32_t x;\n};", `x.h:4: struct dyn_a ends with 4 unnamed bytes`},
		{"struct dyn_a {\n  uint32_t x;\n  uint32_t x;\n};", `x.h:3: field x exists twice`},
		{"struct dyn_a {\n  struct dyn_b b;\n};", `x.h:2: struct "dyn_b" is not defined above`},
		{"struct dyn_a {\n};", `x.h:2: struct dyn_a is empty`},
		{"struct other {\n  uint32_t x;\n};", `x.h:1: struct "other"`},
		{"struct dyn_a {\n  uint32_t x;\n}\n", `x.h:4: "" where ";" was expected`},
		{"struct dyn_a {\n  uint32_t 3x;\n};", `x.h:2: field name "3x"`},
		{"\nunion dyn_a {", `x.h:2: "union" is not supported here`},
		{"typedef uint32_t dyn_t;", `x.h:1: "typedef" is not supported here`},
		{"#define DYN_N (1 + 2)", `x.h:1: value "(1 + 2)" of DYN_N`},
		{"#define DYN_N 010", `x.h:1: value "010" of DYN_N`},
		{"#define DYN_N 0b1", `x.h:1: value "0b1" of DYN_N`},
		{"#define DYN_N 1_0", `x.h:1: value "1_0" of DYN_N`},
		{"#define DYN_N 1u", `x.h:1: value "1u" of DYN_N`},
		{"#define DYN_N", `x.h:1: value "" of DYN_N`},
		{"#define DYN_S \"a\" \"b\"", `x.h:1: string "a" "b" of DYN_S`},
		{"#define DYN_F(x) 3", `x.h:1: macro "DYN_F(x)"`},
		{"#define OTHER 3", `x.h:1: macro "OTHER"`},
		{"#define DYN_N 1\n#define DYN_N 2", `x.h:2: Go name N is taken by line 1`},
		{"#define DYN_N 1 \\\n", `x.h:1: continued directive`},
		{"#include <stddef.h>", `x.h:1: directive "#include <stddef.h>"`},
		{"\n#pragma pack(1)", `x.h:2: directive "#pragma pack(1)"`},
		{"#ifndef DYN_X_H\n", `x.h:2: #ifndef DYN_X_H without #endif`},
		{"#endif", `x.h:1: directive "#endif"`},
		{"/* no end", `x.h:1: comment without end`},
	} {
		_, _, err := generate("x.h", c.src, "p")
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: got error %v, want %s", c.src, err, c.want)
		}
	}
}

// Whatever the text, the generator answers with valid Go or an error.
func FuzzGenerate(f *testing.F) {
	f.Add(sample)
	if abi, err := os.ReadFile("../../abi.h"); err != nil {
		f.Fatal(err)
	} else {
		f.Add(string(abi))
	}
	f.Fuzz(func(t *testing.T, src string) {
		code, table, err := generate("x.h", src, "p")
		if (err == nil) != (code != nil && table != nil) {
			t.Fatalf("error %v with %d and %d bytes of code", err, len(code), len(table))
		}
	})
}
