package agents

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
)

// A policy file: magic, version (uint32), length of the card (uint32), the card (JSON), the tensors of Params in order
// (float32), SHA-256 of everything before it. Little-endian.
const (
	policyMagic   = "DYNICCLP"
	policyVersion = 1
	policyPrefix  = len(policyMagic) + 8
	maxPolicyCard = 1 << 20
)

// Errors of DecodePolicy.
var (
	ErrForeignPolicy = errors.New("not a policy file")
	ErrPolicyVersion = errors.New("policy file of another version")
	ErrPolicyDamaged = errors.New("policy file is damaged")
)

// PolicyCard is what a policy file says about itself.
type PolicyCard struct {
	Name    string             `json:"name"`
	Date    string             `json:"date"`   // of training
	Commit  string             `json:"commit"` // of the code that trained it
	Seed    uint64             `json:"seed"`
	Updates int                `json:"updates"`
	Recipe  map[string]any     `json:"recipe,omitempty"`
	Data    []string           `json:"data,omitempty"`    // tables it learned from; a synthetic part names its generator
	Results map[string]float64 `json:"results,omitempty"` // of the validation during training
	Shapes  map[string][2]int  `json:"shapes"`
	Horizon float64            `json:"horizon"`
	Without Without            `json:"without"` // inputs that it was trained without
	Probe   []float64          `json:"probe"`   // what it answers to a fixed run of calls

	Optimism float64 `json:"optimism,omitempty"` // of its Actor
}

// EncodePolicy writes a policy file. Weights are rounded to float32, which is what training computes in.
func EncodePolicy(w *PolicyWeights, card PolicyCard) ([]byte, error) {
	if err := w.Check(); err != nil {
		return nil, err
	}
	w = w.rounded()
	card.Shapes = map[string][2]int{}
	for _, p := range w.Params() {
		card.Shapes[p.Name] = [2]int{p.Rows, p.Cols}
	}
	card.Probe = probe(w, card.options())
	head, err := json.Marshal(card)
	if err != nil {
		return nil, fmt.Errorf("encoding the card: %w", err)
	}
	out := append([]byte(policyMagic), 0, 0, 0, 0, 0, 0, 0, 0)
	binary.LittleEndian.PutUint32(out[len(policyMagic):], policyVersion)
	binary.LittleEndian.PutUint32(out[len(policyMagic)+4:], uint32(len(head)))
	out = append(out, head...)
	for _, p := range w.Params() {
		for _, x := range p.Data {
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(x)))
		}
	}
	sum := sha256.Sum256(out)
	return append(out, sum[:]...), nil
}

func (w *PolicyWeights) rounded() *PolicyWeights {
	w = w.Clone()
	for _, p := range w.Params() {
		for i, x := range p.Data {
			p.Data[i] = float64(float32(x))
		}
	}
	return w
}

func (c PolicyCard) options() PolicyOptions {
	return PolicyOptions{Horizon: c.Horizon, Without: c.Without, Actor: Actor{Optimism: c.Optimism}}
}

// probeTolerance is far above what another processor's rounding does, far below what another reading of inputs does.
const probeTolerance = 1e-4

// DecodePolicy reads a policy file and refuses, with a reason, one that this program cannot run as it was trained.
func DecodePolicy(file []byte) (*PolicyWeights, PolicyCard, error) {
	var card PolicyCard
	if !bytes.HasPrefix(file, []byte(policyMagic)) {
		return nil, card, fmt.Errorf("it does not begin with %q: %w", policyMagic, ErrForeignPolicy)
	}
	if len(file) < policyPrefix+sha256.Size {
		return nil, card, fmt.Errorf("it ends after %d bytes: %w", len(file), ErrPolicyDamaged)
	}
	if v := binary.LittleEndian.Uint32(file[len(policyMagic):]); v != policyVersion {
		return nil, card, fmt.Errorf("it has format %d, this program reads format %d: train it again or use the program it came with: %w",
			v, policyVersion, ErrPolicyVersion)
	}
	body, sum := file[:len(file)-sha256.Size], file[len(file)-sha256.Size:]
	if want := sha256.Sum256(body); !bytes.Equal(sum, want[:]) {
		return nil, card, fmt.Errorf("its checksum is wrong: copy it again: %w", ErrPolicyDamaged)
	}
	size := int(binary.LittleEndian.Uint32(file[len(policyMagic)+4:]))
	if size > maxPolicyCard || policyPrefix+size > len(body) {
		return nil, card, fmt.Errorf("its card claims %d bytes: %w", size, ErrPolicyDamaged)
	}
	if err := json.Unmarshal(body[policyPrefix:policyPrefix+size], &card); err != nil {
		return nil, card, fmt.Errorf("its card: %w: %w", err, ErrPolicyDamaged)
	}
	w := newPolicyWeights()
	rest := body[policyPrefix+size:]
	for _, p := range w.Params() {
		if shape, ok := card.Shapes[p.Name]; !ok || shape != [2]int{p.Rows, p.Cols} {
			return nil, card, fmt.Errorf("%s has shape %v, this program runs %dx%d: train it again: %w", p.Name, shape, p.Rows, p.Cols, ErrPolicyVersion)
		}
		if len(rest) < 4*len(p.Data) {
			return nil, card, fmt.Errorf("it ends within %s: %w", p.Name, ErrPolicyDamaged)
		}
		for i := range p.Data {
			p.Data[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(rest[4*i:])))
		}
		rest = rest[4*len(p.Data):]
	}
	if len(rest) != 0 {
		return nil, card, fmt.Errorf("%d bytes after the last tensor: %w", len(rest), ErrPolicyDamaged)
	}
	if err := w.Check(); err != nil {
		return nil, card, err
	}
	if !(card.Horizon > 0) {
		return nil, card, fmt.Errorf("its card has horizon %g, want a number of calls: %w", card.Horizon, ErrPolicyDamaged)
	}
	got := probe(w, card.options())
	if len(got) != len(card.Probe) {
		return nil, card, fmt.Errorf("its probe has %d answers, this program gives %d: train it again: %w", len(card.Probe), len(got), ErrPolicyVersion)
	}
	for i := range got {
		if d := math.Abs(got[i] - card.Probe[i]); !(d <= probeTolerance) {
			return nil, card, fmt.Errorf("it answers %.6f to probe %d, but %.6f where it was trained: this program reads its inputs in another way: train it again: %w",
				got[i], i, card.Probe[i], ErrPolicyVersion)
		}
	}
	return w, card, nil
}

// Learner makes learners that run a decoded policy.
func (c PolicyCard) Learner(w *PolicyWeights) (NewLearner, error) { return NewLSTM(w, c.options()) }
