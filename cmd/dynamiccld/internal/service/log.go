package service

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"
)

// LogBytes is what the log of a daemon that `run` started may grow to: it lies in the directory of the shared files, which is memory on
// most hosts, and nobody rotates it.
const LogBytes = 16 << 20

// Bounded begins a file anew that has grown beyond so many bytes. What is no file, or not appended to, is written as it is.
func Bounded(w io.Writer, most int64) io.Writer {
	file, ok := w.(*os.File)
	if !ok {
		return w
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return w
	}
	if flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFL, 0); err != nil || flags&unix.O_APPEND == 0 {
		return w
	}
	return &bounded{file, most}
}

type bounded struct {
	file *os.File
	most int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if info, err := b.file.Stat(); err == nil && info.Size() > b.most && b.file.Truncate(0) == nil {
		fmt.Fprintf(b.file, "%d bytes of log were deleted here\n", info.Size())
	}
	return b.file.Write(p)
}

// NewLog makes the daemon's log. Its level follows the returned variable.
func NewLog(w io.Writer, format, level string) (*slog.Logger, *slog.LevelVar) {
	v := new(slog.LevelVar)
	SetLevel(v, level)
	opts := &slog.HandlerOptions{Level: v}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts)), v
	}
	return slog.New(slog.NewTextHandler(w, opts)), v
}

// SetLevel takes a level that the configuration has validated.
func SetLevel(v *slog.LevelVar, level string) {
	var l slog.Level
	if l.UnmarshalText([]byte(level)) == nil {
		v.Set(l)
	}
}
