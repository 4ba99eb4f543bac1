package units

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ErrBadSize is returned for text that is no number of bytes.
var ErrBadSize = errors.New("not a size")

var shifts = map[string]uint{
	"": 0, "b": 0,
	"k": 10, "kb": 10, "kib": 10,
	"m": 20, "mb": 20, "mib": 20,
	"g": 30, "gb": 30, "gib": 30,
	"t": 40, "tb": 40, "tib": 40,
}

// ParseBytes reads "65536", "64K", "64KiB" or "64 KiB". Suffixes are powers of 1024, as nccl-tests has them.
func ParseBytes(s string) (uint64, error) {
	text := strings.TrimSpace(s)
	end := 0
	for end < len(text) && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	shift, known := shifts[strings.ToLower(strings.TrimSpace(text[end:]))]
	if end == 0 || !known {
		return 0, fmt.Errorf("%q: %w; write bytes with an optional suffix, like 65536, 64K or 64KiB", s, ErrBadSize)
	}
	n, err := strconv.ParseUint(text[:end], 10, 64)
	if err != nil || n > math.MaxUint64>>shift {
		return 0, fmt.Errorf("%q: %w: larger than 2^64-1 bytes", s, ErrBadSize)
	}
	return n << shift, nil
}

// Duration writes nanoseconds with three digits and the unit that fits.
func Duration(ns float64) string {
	switch {
	case ns <= 0 || math.IsNaN(ns) || math.IsInf(ns, 0):
		return "-"
	case ns < 1e3:
		return fmt.Sprintf("%.3g ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.*f us", digits(ns/1e3), ns/1e3)
	case ns < 1e9:
		return fmt.Sprintf("%.*f ms", digits(ns/1e6), ns/1e6)
	}
	return fmt.Sprintf("%.*f s", digits(ns/1e9), ns/1e9)
}

func digits(v float64) int {
	switch {
	case v < 10:
		return 2
	case v < 100:
		return 1
	}
	return 0
}

// Ago writes how long before now t is, without a false precision.
func Ago(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d < time.Second:
		return "just now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// Count writes "1 rule", "2 rules".
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
