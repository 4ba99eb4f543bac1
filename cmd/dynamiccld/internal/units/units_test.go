package units

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]uint64{"0": 0, "1": 1, "65536": 65536, "64K": 65536, "64k": 65536, "64KB": 65536, "64KiB": 65536, "64 KiB": 65536,
		" 1M ": 1 << 20, "1g": 1 << 30, "2TiB": 2 << 40, "17B": 17, "18446744073709551615": math.MaxUint64, "16777215T": 16777215 << 40} {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "K", "-1", "+1", "1.5K", "1e6", "0x10", "1 2", "64KK", "1P", "18446744073709551616", "16777216T", "NaN", "１"} {
		if got, err := ParseBytes(in); !errors.Is(err, ErrBadSize) {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[float64]string{0: "-", -1: "-", math.NaN(): "-", math.Inf(1): "-", 0.5: "0.5 ns", 999: "999 ns", 1000: "1.00 us", 11_234: "11.2 us",
		999_400: "999 us", 1.5e6: "1.50 ms", 3e10: "30.0 s"} {
		if got := Duration(in); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
}

func TestAgo(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for d, want := range map[time.Duration]string{-time.Hour: "just now", 0: "just now", 59 * time.Second: "59 s ago", 110 * time.Minute: "110 min ago",
		3 * time.Hour: "3 h ago", 72 * time.Hour: "3 days ago"} {
		if got := Ago(now.Add(-d), now); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

// FuzzParseBytes: adding a suffix to what was read without one multiplies it, or overflows.
func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"64", "64KiB", "99999999999999999999T", " 7 ", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseBytes(s)
		if end := strings.TrimSpace(s); err != nil || end[len(end)-1] < '0' || end[len(end)-1] > '9' {
			return // no number, or a suffix already
		}
		if k, err := ParseBytes(s + "KiB"); err == nil && k != n<<10 || err != nil && n <= math.MaxUint64>>10 {
			t.Errorf("%q: %d, with KiB %d, %v", s, n, k, err)
		}
	})
}
