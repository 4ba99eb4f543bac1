package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"dynamiccl/actions"
	"dynamiccl/cmd/internal/wholefile"
)

// File is what a file of rules holds.
type File struct {
	Text    string
	Rules   []actions.Rule
	Refused []actions.Refusal
}

// Print writes it as CSV.
func (f File) Print(w io.Writer) error {
	return errors.Join(actions.WriteNCCLCSV(w, f.Rules), actions.WriteRefusals(w, f.Refused))
}

// Write writes it to path, whole or not at all: NCCL may be reading the file that it replaces.
func (f File) Write(path string) error {
	var text bytes.Buffer
	if err := f.Print(&text); err != nil {
		return err
	}
	return wholefile.Write(path, text.Bytes())
}

// Read reads CSV whole and checks every rule and refusal. limit bounds the bytes.
func Read(name string, r io.Reader, limit int64) (File, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return File{}, fmt.Errorf("reading %s: %w; name a CSV file, or - for standard input", name, err)
	}
	if int64(len(data)) > limit {
		return File{}, fmt.Errorf("%s is larger than %d bytes; split it", name, limit)
	}
	f := File{Text: string(data)}
	if f.Rules, f.Refused, err = actions.ReadRules(f.Text); err != nil {
		return File{}, fmt.Errorf("%s: %w; nothing was imported, correct the line and try again", name, err)
	}
	if len(f.Rules)+len(f.Refused) == 0 {
		return File{}, fmt.Errorf("%s holds no rules; is it the right file?", name)
	}
	return f, nil
}
