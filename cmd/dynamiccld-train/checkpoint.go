package main

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"dynamiccl/cmd/internal/wholefile"
	"dynamiccl/models/train"
)

// saved is the checkpoint's file: the trainer's own and what the command counts.
type saved struct {
	Every   int // updates between validations: others keep other weights
	Since   sums
	Trainer []byte
}

// previous reads the checkpoint that the run goes on from, nil for a new run. A new run does not write over an old one's.
func (o *options) previous() (*saved, error) {
	file, err := os.ReadFile(o.checkpoint)
	switch {
	case errors.Is(err, fs.ErrNotExist) && o.resume:
		return nil, usage{fmt.Errorf("--resume: there is no checkpoint %s; a finished run removes it", o.checkpoint)}
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading the checkpoint: %w", err)
	case !o.resume:
		return nil, usage{fmt.Errorf("%s is of a run that was stopped: --resume goes on with it; remove it to begin anew", o.checkpoint)}
	}
	s := new(saved)
	rest := bytes.NewReader(file)
	err = gob.NewDecoder(rest).Decode(s)
	if err == nil && rest.Len() > 0 {
		err = fmt.Errorf("%d bytes too many", rest.Len())
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged or no checkpoint: restore the file, or remove it and start anew without --resume: %w (%w)",
			o.checkpoint, train.ErrBadCheckpoint, err)
	}
	if s.Every != o.every {
		return nil, usage{fmt.Errorf("%s: the run was validated every %d updates: give --validate-every %d", o.checkpoint, s.Every, s.Every)}
	}
	return s, nil
}

// save writes the checkpoint of the present moment.
func (r *run) save() error {
	file, err := r.trainer.Checkpoint()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(saved{r.every, r.since, file}); err != nil {
		return fmt.Errorf("encoding the checkpoint: %w", err)
	}
	return wholefile.Write(r.checkpoint, b.Bytes())
}

// again is the command line that goes on.
func (o *options) again() string {
	words := []string{"dynamiccld", "train"}
	for _, a := range o.args {
		if strings.ContainsFunc(a, func(c rune) bool { return !strings.ContainsRune("-+./=,:_@%", c) && !isWord(c) }) || a == "" {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		words = append(words, a)
	}
	if !slices.ContainsFunc(o.args, func(a string) bool { return a == "--resume" || a == "--resume=true" }) {
		words = append(words, "--resume")
	}
	return strings.Join(words, " ")
}

func isWord(c rune) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
