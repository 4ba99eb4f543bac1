package tracefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/tuner/tunersim"
)

// What no memory holds is refused where its bound is met, whatever is behind; what is within the bounds is read.
func TestBounds(t *testing.T) {
	const head = "machine,nccl,nranks,nnodes,transport,condition,collective,bytes,path,algorithm,protocol,channels,median_us,note\n"
	row := func(bytes, length int) string {
		s := fmt.Sprintf("m,2.28.9,2,1,nvlink,quiet,AllReduce,%d,default,-,-,-,20,", bytes)
		return s + strings.Repeat("x", max(0, length-len(s))) + "\n"
	}
	dir := t.TempDir()
	for _, c := range []struct {
		name, text string
		hole       int64 // grown to so many bytes
		want       string
	}{
		{"longest line.csv", head + row(1024, maxLine) + row(2048, maxLine), 0, ""},
		{"line.csv", head + row(1024, maxLine) + row(2048, maxLine+1), 0, "a line is longer than 65536 bytes"},
		{"first line.csv", strings.Repeat("x", maxLine+1), 0, "a line is longer than 65536 bytes"},
		{"hole.csv", head, 1 << 28, "a line is longer than 65536 bytes"},
		{"file.csv", head + strings.Repeat(row(1024, maxLine), maxBytes/maxLine), 0, "it is larger than 67108864 bytes; split it"},
	} {
		file := filepath.Join(dir, c.name)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.hole > 0 {
			if err := os.Truncate(file, c.hole); err != nil {
				t.Fatal(err)
			}
		}
		table, err := Read(file)
		if c.want == "" && (err != nil || len(table.Buckets()) != 2) {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.want != "" && (!errors.Is(err, tunersim.ErrBadTable) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), Remedy)) {
			t.Errorf("%s: %.300v", c.name, err)
		}
	}
}

// A pipe that nobody writes into is no table, and nobody waits for one.
func TestReadPipe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pipe.csv")
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := Read(file)
		read <- err
	}()
	select {
	case err := <-read:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for a writer")
	}
}
