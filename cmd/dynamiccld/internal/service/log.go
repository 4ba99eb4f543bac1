package service

import (
	"io"
	"log/slog"
)

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
