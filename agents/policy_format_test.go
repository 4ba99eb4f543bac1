package agents

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

func testCard() PolicyCard {
	return PolicyCard{Name: NameLSTM, Date: "2026-01-02", Commit: "abc", Seed: 7, Updates: 10, Recipe: map[string]any{"rate": 0.003},
		Data: []string{"one", "two"}, Results: map[string]float64{"validation_regret": 3.5}, Horizon: DefaultPolicyOptions().Horizon,
		Without: Without{Counter: true}}
}

// policyFile is a good file of random weights.
func policyFile(t testing.TB) ([]byte, *PolicyWeights) {
	t.Helper()
	w := RandomPolicyWeights(rand.New(rand.NewPCG(11, 1)))
	for _, p := range w.Params() {
		p.Data[len(p.Data)-1] = math.Pi / 10 // no float32
	}
	file, err := EncodePolicy(w, testCard())
	if err != nil {
		t.Fatal(err)
	}
	return file, w
}

// signed puts the right checksum at the end of a file that was changed.
func signed(file []byte) []byte {
	file = bytes.Clone(file)
	sum := sha256.Sum256(file[:len(file)-sha256.Size])
	copy(file[len(file)-sha256.Size:], sum[:])
	return file
}

// parts takes a file apart; join puts it together again, with a right checksum.
func parts(file []byte) (card, tensors []byte) {
	size := int(binary.LittleEndian.Uint32(file[len(policyMagic)+4:]))
	return file[policyPrefix : policyPrefix+size], file[policyPrefix+size : len(file)-sha256.Size]
}

func join(card, tensors []byte) []byte {
	out := []byte(policyMagic)
	out = binary.LittleEndian.AppendUint32(out, policyVersion)
	out = binary.LittleEndian.AppendUint32(out, uint32(len(card)))
	out = append(append(out, card...), tensors...)
	return signed(append(out, make([]byte, sha256.Size)...))
}

func TestPolicyRoundTrip(t *testing.T) {
	file, w := policyFile(t)
	back, card, err := DecodePolicy(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range back.Params() {
		for j, x := range w.Params()[i].Data {
			if p.Data[j] != float64(float32(x)) {
				t.Fatalf("%s[%d]: %g came back as %g", p.Name, j, x, p.Data[j])
			}
		}
	}
	if len(card.Probe) == 0 || len(card.Shapes) != len(w.Params()) {
		t.Errorf("the card has %d answers to the probe and %d shapes", len(card.Probe), len(card.Shapes))
	}
	plain := card
	plain.Probe, plain.Shapes = nil, nil
	if !reflect.DeepEqual(plain, testCard()) {
		t.Errorf("card %+v", plain)
	}
	again, err := EncodePolicy(back, card)
	if err != nil || !bytes.Equal(again, file) {
		t.Errorf("what is decoded is encoded to other bytes (%v)", err)
	}
	if card, tensors := parts(file); !bytes.Equal(join(card, tensors), file) {
		t.Error("this test does not take files apart as they are made")
	}
	if _, err := card.Learner(back); err != nil {
		t.Error(err)
	}
}

// changedCard gives the file with a card that says something else.
func changedCard(t testing.TB, file []byte, change func(*PolicyCard)) []byte {
	t.Helper()
	text, tensors := parts(file)
	var card PolicyCard
	if err := json.Unmarshal(text, &card); err != nil {
		t.Fatal(err)
	}
	change(&card)
	text, err := json.Marshal(card)
	if err != nil {
		t.Fatal(err)
	}
	return join(text, tensors)
}

func TestPolicyIsRefusedWithAReason(t *testing.T) {
	file, _ := policyFile(t)
	card, tensors := parts(file)
	edit := func(fn func(f []byte) []byte) []byte { return fn(bytes.Clone(file)) }
	put := func(at int, v uint32) func([]byte) []byte {
		return func(f []byte) []byte {
			binary.LittleEndian.PutUint32(f[at:], v)
			return signed(f)
		}
	}
	nan := bytes.Clone(tensors)
	binary.LittleEndian.PutUint32(nan[4*100:], math.Float32bits(float32(math.NaN())))
	for name, c := range map[string]struct {
		file   []byte
		want   error
		reason string
	}{
		"nothing":           {nil, ErrForeignPolicy, "does not begin"},
		"foreign":           {[]byte("\x7fELF, or anything else that is no policy"), ErrForeignPolicy, policyMagic},
		"only the magic":    {[]byte(policyMagic), ErrPolicyDamaged, "ends after 8 bytes"},
		"truncated":         {file[:len(file)-1], ErrPolicyDamaged, "checksum"},
		"half":              {file[:len(file)/2], ErrPolicyDamaged, "checksum"},
		"longer":            {append(bytes.Clone(file), 0), ErrPolicyDamaged, "checksum"},
		"flipped bit":       {edit(func(f []byte) []byte { f[len(f)/2] ^= 4; return f }), ErrPolicyDamaged, "checksum"},
		"flipped checksum":  {edit(func(f []byte) []byte { f[len(f)-1] ^= 1; return f }), ErrPolicyDamaged, "checksum"},
		"newer format":      {edit(put(len(policyMagic), policyVersion+1)), ErrPolicyVersion, "format 2"},
		"endless card":      {edit(put(len(policyMagic)+4, 1<<31)), ErrPolicyDamaged, "claims"},
		"card past the end": {edit(put(len(policyMagic)+4, uint32(len(file)))), ErrPolicyDamaged, "claims"},
		"card no JSON":      {join([]byte("{"), tensors), ErrPolicyDamaged, "card"},
		"card empty":        {join([]byte("{}"), tensors), ErrPolicyVersion, "shape"},
		"tensors short":     {join(card, tensors[:len(tensors)-4]), ErrPolicyDamaged, "ends within trust_b"},
		"tensors long":      {join(card, append(bytes.Clone(tensors), 1, 2, 3)), ErrPolicyDamaged, "3 bytes after"},
		"NaN":               {join(card, nan), ErrBadWeights, "NaN"},
		"other shape": {changedCard(t, file, func(c *PolicyCard) { c.Shapes["middle_h"] = [2]int{1, 2} }), ErrPolicyVersion,
			"middle_h has shape [1 2]"},
		"shape missing": {changedCard(t, file, func(c *PolicyCard) { delete(c.Shapes, "x_cell") }), ErrPolicyVersion, "x_cell"},
		"no horizon":    {changedCard(t, file, func(c *PolicyCard) { c.Horizon = 0 }), ErrPolicyDamaged, "horizon"},
		"shorter probe": {changedCard(t, file, func(c *PolicyCard) { c.Probe = c.Probe[1:] }), ErrPolicyVersion, "probe has"},
		"other answer":  {changedCard(t, file, func(c *PolicyCard) { c.Probe[3] += 0.01 }), ErrPolicyVersion, "probe 3"},
		"other inputs":  {changedCard(t, file, func(c *PolicyCard) { c.Without = Without{Peers: true} }), ErrPolicyVersion, "train it again"},
	} {
		w, _, err := DecodePolicy(c.file)
		if w != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: weights %v, error %v; want %q and %q", name, w != nil, err, c.want, c.reason)
		}
	}
}

// Every byte of a file is under the checksum.
func TestPolicyFlippedBytes(t *testing.T) {
	file, _ := policyFile(t)
	for at := 0; at < len(file); at += 1 + at/16 {
		file[at] ^= 0x20
		if w, _, err := DecodePolicy(file); w != nil || !isPolicyError(err) {
			t.Errorf("byte %d flipped: %v", at, err)
		}
		file[at] ^= 0x20
	}
}

func isPolicyError(err error) bool {
	return errors.Is(err, ErrForeignPolicy) || errors.Is(err, ErrPolicyVersion) || errors.Is(err, ErrPolicyDamaged) || errors.Is(err, ErrBadWeights)
}

func TestPolicyOfBadWeightsIsNotWritten(t *testing.T) {
	_, w := policyFile(t)
	w.MeanW[5] = math.Inf(1)
	if _, err := EncodePolicy(w, testCard()); !errors.Is(err, ErrBadWeights) {
		t.Errorf("infinite weight: %v", err)
	}
	w.MeanW = w.MeanW[:5]
	if _, err := EncodePolicy(w, testCard()); !errors.Is(err, ErrBadWeights) {
		t.Errorf("tensor cut off: %v", err)
	}
}

// FuzzDecodePolicy: what is damaged, or made to look whole with a right checksum, gives an error of ours or a policy that
// runs, and never a panic.
func FuzzDecodePolicy(f *testing.F) {
	file, _ := policyFile(f)
	card, tensors := parts(file)
	f.Add(card, uint32(0), byte(0), uint32(0), false)
	f.Add(card, uint32(100), byte(0xff), uint32(4), true)
	f.Add([]byte(`{"shapes":{}}`), uint32(7), byte(1), uint32(0), true)
	f.Add(bytes.Replace(card, []byte(`"horizon":40`), []byte(`"horizon":1e300`), 1), uint32(3), byte(0x7f), uint32(0), true)
	f.Fuzz(func(t *testing.T, card []byte, at uint32, flip byte, cut uint32, sign bool) {
		made := join(card, tensors)
		made[int(at)%len(made)] ^= flip
		made = made[:len(made)-int(cut)%len(made)]
		if sign && len(made) > sha256.Size {
			made = signed(made)
		}
		w, c, err := DecodePolicy(made)
		if err != nil {
			if w != nil || !isPolicyError(err) {
				t.Fatalf("weights %v, error %v", w != nil, err)
			}
			return
		}
		if _, err := EncodePolicy(w, c); err != nil {
			t.Fatalf("decoded, but not encoded: %v", err)
		}
	})
}
