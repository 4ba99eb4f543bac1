package train

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"math"
)

// ErrBadCheckpoint is returned for a checkpoint that this run cannot go on from.
var ErrBadCheckpoint = errors.New("bad checkpoint")

const checkpointMagic = "DYNTRAIN1"

// checkpoint is a run between two updates.
type checkpoint struct {
	Recipe    Recipe
	Tables    [][sha256.Size]byte
	Update    int
	Params    [][]float32
	Played    [][]float32
	Adam      adam
	Best      [][]float32
	BestScore float64
	Curve     []Point
	Origin    Origin
}

// Origin is what the updates of pretraining were made with, where that is not what the run has.
type Origin struct {
	Objective   Objective // the first one; "": no other
	OtherTables bool      // no update saw them, but validations did
}

// Origin says where the weights come from.
func (t *Trainer) Origin() Origin { return t.origin }

// fingerprints of the tables, so that a run does not go on with others.
func (t *Trainer) fingerprints() [][sha256.Size]byte {
	var sums [][sha256.Size]byte
	for _, table := range t.tables {
		var b bytes.Buffer
		fmt.Fprintln(&b, table.Machine, table.NCCL, table.Shape, table.NICs, table.Condition)
		for _, r := range table.Rows() {
			fmt.Fprintln(&b, r)
		}
		sums = append(sums, sha256.Sum256(b.Bytes()))
	}
	return sums
}

// Checkpoint is all that Resume needs.
func (t *Trainer) Checkpoint() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(checkpointMagic)
	err := gob.NewEncoder(&b).Encode(checkpoint{t.recipe, t.fingerprints(), t.update, t.params, t.played, *t.adam, t.best, t.bestScore, t.curve, t.origin})
	if err != nil {
		return nil, fmt.Errorf("encoding the checkpoint: %w", err)
	}
	sum := sha256.Sum256(b.Bytes())
	return append(b.Bytes(), sum[:]...), nil
}

// Resume goes on from a checkpoint of the same recipe and tables: what comes out has the same bytes as an unbroken run.
func (t *Trainer) Resume(file []byte) error {
	if !bytes.HasPrefix(file, []byte(checkpointMagic)) || len(file) < len(checkpointMagic)+sha256.Size {
		return fmt.Errorf("not a checkpoint of this version: restore the file or start anew: %w", ErrBadCheckpoint)
	}
	body, sum := file[:len(file)-sha256.Size], file[len(file)-sha256.Size:]
	if want := sha256.Sum256(body); !bytes.Equal(sum, want[:]) {
		return fmt.Errorf("its checksum is wrong: restore the file or start anew: %w", ErrBadCheckpoint)
	}
	var c checkpoint
	if err := gob.NewDecoder(bytes.NewReader(body[len(checkpointMagic):])).Decode(&c); err != nil {
		return fmt.Errorf("not a checkpoint of this version: start anew: %w (%w)", ErrBadCheckpoint, err)
	}
	mine, its := t.recipe, c.Recipe
	if c.Update <= its.Pretrain { // what comes after pretraining is still open
		mine.Updates, mine.Synthetic = its.Updates, its.Synthetic
	}
	if c.Update == its.Pretrain { // so that imitation can be gone on from by another objective
		mine.Objective = its.Objective
	}
	if its != mine {
		return fmt.Errorf("it is of another recipe, with %s: give the same one or start anew: %w", its.unlike(mine), ErrBadCheckpoint)
	}
	prints := t.fingerprints()
	same := len(prints) == len(c.Tables)
	for i := range prints {
		same = same && prints[i] == c.Tables[i]
	}
	if !same && c.Update > c.Recipe.Pretrain {
		return fmt.Errorf("it was trained on other tables: start anew or give the same ones: %w", ErrBadCheckpoint)
	}
	for _, tensors := range [][][]float32{c.Params, c.Played, c.Adam.M, c.Adam.V} {
		if len(tensors) != len(t.params) {
			return fmt.Errorf("%d tensors, want %d: %w", len(tensors), len(t.params), ErrBadCheckpoint)
		}
		for i := range tensors {
			if len(tensors[i]) != len(t.params[i]) {
				return fmt.Errorf("tensor %d has %d values, want %d: %w", i, len(tensors[i]), len(t.params[i]), ErrBadCheckpoint)
			}
		}
	}
	for i := range c.Params { // the graph holds these slices
		copy(t.params[i], c.Params[i])
	}
	t.played, t.adam, t.update, t.best, t.bestScore, t.curve = c.Played, &c.Adam, c.Update, c.Best, c.BestScore, c.Curve
	t.pending, t.origin = nil, c.Origin
	t.origin.OtherTables = t.origin.OtherTables || !same
	if t.origin.Objective == "" && t.recipe.Objective != c.Recipe.Objective {
		t.origin.Objective = c.Recipe.Objective
	}
	// Nothing of other tables is in these weights yet, but the validation was on them; or it was of another way to choose.
	if !same || t.recipe.Objective != c.Recipe.Objective {
		t.best, t.bestScore = nil, math.Inf(1)
	}
	return nil
}
