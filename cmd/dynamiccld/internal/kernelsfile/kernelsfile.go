package kernelsfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Name is that of the kernels' file beside the preload library, and Variable names another file (kernels/host/module.c).
const (
	Name     = "dynamiccl-kernels.fatbin"
	Variable = "DYNAMICCL_KERNELS"
)

// GINVariable names another file of the kernels over NCCL's GIN, whatever the version (kernels/host/gin_module.c).
const GINVariable = "DYNAMICCL_GIN_KERNELS"

// OverGIN are the files of these, by the version of NCCL that they are for, the oldest first (DYN_GIN_NCCL_VERSIONS, kernels/host/nccl_gin.h).
var OverGIN = []struct{ NCCL, Name string }{{"2.28.9", "dynamiccl-gin.fatbin"}, {"2.32.3", "dynamiccl-gin-2.32.3.fatbin"}}

// most is the size of the largest file that ranks take, and magic the first bytes of each (dyn_fatbin_read, kernels/host/module.c).
const most = 64 << 20

var magic = []byte{0x50, 0xed, 0x55, 0xba}

// File is one that ranks read.
type File struct {
	Path    string
	Refused string // that they refuse it and why, with its name and the variable's; "": they take it
	Remedy  string // "": they take it
}

// Find gives the file that ranks read: the one that the variable names, else the one beside their library. False: nobody named one, and there
// is none, so that ranks say nothing: the kernels were not built.
func Find(getenv func(string) string, variable, beside string) (File, bool) {
	named := getenv(variable)
	f := File{Path: cmp.Or(named, beside)}
	if _, err := os.Stat(beside); named == "" && err != nil {
		return f, false
	}
	switch why := refused(f.Path); {
	case why == "":
	case named == "":
		f.Refused, f.Remedy = beside+" "+why, "build it anew with `make kernels`"
	default:
		f.Refused, f.Remedy = fmt.Sprintf("%s names %s, which %s", variable, named, why), "build it anew with `make kernels`, or unset "+variable
	}
	return f, true
}

// refused says why ranks refuse a file; "": they take it. What CUDA finds wrong behind the first bytes is not known here.
func refused(path string) string {
	info, err := os.Stat(path) // before it is opened, which waits for others where it is a pipe
	switch {
	case err != nil:
		return unreadable(err)
	case !info.Mode().IsRegular():
		return "is no regular file"
	case info.Size() < int64(len(magic)) || info.Size() > most:
		return fmt.Sprintf("is no fatbin of kernels (it has %d bytes, and such a file %d to %d)", info.Size(), len(magic), most)
	}
	file, err := os.Open(path)
	if err != nil {
		return unreadable(err)
	}
	defer file.Close()
	first := make([]byte, len(magic))
	if _, err := io.ReadFull(file, first); err != nil {
		return unreadable(err)
	}
	if !bytes.Equal(first, magic) {
		return fmt.Sprintf("is no fatbin of kernels (it begins with the bytes % x, and such a file with % x)", first, magic)
	}
	return ""
}

// unreadable leaves out the path, which is said before.
func unreadable(err error) string {
	if path := new(fs.PathError); errors.As(err, &path) {
		err = path.Err
	}
	return fmt.Sprintf("cannot be read (%v)", err)
}
