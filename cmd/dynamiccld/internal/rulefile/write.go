package rulefile

import (
	"bytes"
	"fmt"
	"io"

	"dynamiccl/actions"
	"dynamiccl/cmd/internal/wholefile"
)

// Write writes rules as CSV to path, whole or not at all: NCCL may be reading the file that it replaces.
func Write(path string, rules []actions.Rule) error {
	var text bytes.Buffer
	if err := actions.WriteNCCLCSV(&text, rules); err != nil {
		return err
	}
	return wholefile.Write(path, text.Bytes())
}

// Read reads CSV whole and checks every rule. limit bounds the bytes.
func Read(name string, r io.Reader, limit int64) (text string, rules []actions.Rule, err error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return "", nil, fmt.Errorf("reading %s: %w; name a CSV file, or - for standard input", name, err)
	}
	if int64(len(data)) > limit {
		return "", nil, fmt.Errorf("%s is larger than %d bytes; split it", name, limit)
	}
	rules, err = actions.ReadNCCLCSV(bytes.NewReader(data))
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w; nothing was imported, correct the line and try again", name, err)
	}
	if len(rules) == 0 {
		return "", nil, fmt.Errorf("%s holds no rules; is it the right file?", name)
	}
	return string(data), rules, nil
}
