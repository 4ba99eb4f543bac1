package testbuild

import (
	"debug/elf"
	"slices"
	"testing"
)

// OpenLibrary has a shared library open until the test ends.
func OpenLibrary(t *testing.T, path string) *elf.File {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// Library reads what a shared library shows, sorted, what it needs, and its soname, of which it may have none.
func Library(t *testing.T, path string) (shows, needs, soname []string) {
	t.Helper()
	file := OpenLibrary(t, path)
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			shows = append(shows, s.Name)
		}
	}
	slices.Sort(shows)
	if needs, err = file.ImportedLibraries(); err != nil {
		t.Fatal(err)
	}
	if soname, err = file.DynString(elf.DT_SONAME); err != nil {
		t.Fatal(err)
	}
	return shows, needs, soname
}
