package sweep

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/forced"
	"dynamiccl/tuner"
)

// Who stops a sweep while samples come has none of the point, which is measured again.
func TestStoppedWhileSamplesCome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples.csv")
	s := &session{Session: &forced.Session{}, o: &Options{Samples: path}, groups: tuner.NewGroups(1)}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := s.writeSamples(ctx, "AllReduce", 1024, actions.Default, 0, &Point{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it wrote: %v", err)
	}
}

// Samples go on in their own file behind whole rows, and in no other.
func TestSamplesOfSomethingElse(t *testing.T) {
	path, head := filepath.Join(t.TempDir(), "samples.csv"), strings.Join(sampleColumns, ",")+"\n"
	for _, tc := range []struct {
		name, text, want, why string
		anew                  bool
	}{
		{name: "empty", want: head},
		{name: "theirs", text: head + "1,2\n", want: head + "1,2\n"},
		{name: "a row that was cut off", text: head + "1,2\n3", want: head + "1,2\n"},
		{name: "another file", text: "\x00\x01 a store, say", want: "\x00\x01 a store, say", why: "name another file"},
		{name: "older columns", text: "round,nth\n1,2\n", want: "round,nth\n1,2\n", why: "columns of this version"},
		{name: "begun anew", text: "round,nth\n1,2\n", want: head, anew: true},
	} {
		if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		err := startSamples(path, tc.anew)
		if (err == nil) != (tc.why == "") || err != nil && (!strings.Contains(err.Error(), "--samples "+path) || !strings.Contains(err.Error(), tc.why)) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != tc.want {
			t.Errorf("%s: the file holds %q, %v", tc.name, left, err)
		}
	}
	for _, no := range []string{filepath.Join(path, "below"), "/dev/null"} {
		if err := startSamples(no, false); err == nil || !strings.Contains(err.Error(), no) || !strings.Contains(err.Error(), "name a") {
			t.Errorf("%s: %v", no, err)
		}
	}
}
