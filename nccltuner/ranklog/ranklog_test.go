package ranklog

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"dynamiccl/actions"
)

func readers(logs ...[]byte) []io.Reader {
	var rs []io.Reader
	for _, l := range logs {
		rs = append(rs, bytes.NewReader(l))
	}
	return rs
}

func mustCompare(t *testing.T, logs ...[]byte) Report {
	t.Helper()
	rep, err := Compare(readers(logs...)...)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func TestDecoderReadsWhatWasWritten(t *testing.T) {
	want := []Record{call(0, 20), call(1, 10), {Comm: 1, Seq: 1<<32 - 1, Phase: 1, Collective: actions.AllGather, Bytes: 1<<64 - 1,
		Algorithm: actions.PAT, Protocol: actions.Simple, Channels: 255, MaxChannels: 64, Aggregated: true, CostNs: 1<<32 - 1}}
	d, err := NewDecoder(bytes.NewReader(logOf(1, want...)))
	if err != nil {
		t.Fatal(err)
	}
	wantHeader := header
	wantHeader.Rank = 1
	if d.Header != wantHeader {
		t.Errorf("header %+v, want %+v", d.Header, wantHeader)
	}
	for i, w := range want {
		if got, err := d.Next(); err != nil || got != w {
			t.Errorf("record %d: %+v, %v, want %+v", i, got, err, w)
		}
	}
	if _, err := d.Next(); !errors.Is(err, io.EOF) || d.Truncated {
		t.Errorf("after the last record: %v, truncated %v", err, d.Truncated)
	}
}

// A killed rank leaves any number of bytes of its last record; nothing before it is lost.
func TestTruncatedLastRecord(t *testing.T) {
	whole := logOf(0, call(0, 20), call(1, 10), call(2, 10))
	other := logOf(1, call(0, 20), call(1, 10), call(2, 10))
	for cut := 1; cut < recordBytes; cut++ {
		rep := mustCompare(t, whole[:len(whole)-cut], other)
		if rep.Calls != 3 || rep.Compared != 2 || rep.Disagreements != 0 || rep.Truncated != 1 {
			t.Fatalf("%d bytes cut off: %+v", cut, rep)
		}
	}
	if rep := mustCompare(t, whole[:len(whole)-recordBytes], other); rep.Truncated != 0 || rep.Compared != 2 {
		t.Errorf("cut between records: %+v", rep)
	}
}

func TestDamagedLogs(t *testing.T) {
	good := logOf(0, call(0, 20), call(1, 10))
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	resealed := func(at int, v byte) []byte {
		b := change(at, v)
		seal(b[headerBytes:][:recordBytes])
		return b
	}
	cases := map[string][]byte{
		"empty":               {},
		"half a header":       good[:headerBytes-1],
		"magic":               change(0, 0),
		"version":             change(8, 2),
		"record size":         change(12, 39),
		"rank beyond ranks":   change(24, 2),
		"no ranks":            change(28, 0),
		"no communicators":    change(32, 0),
		"checksum":            change(headerBytes+3, 77),
		"communicator":        resealed(headerBytes+24, 2),
		"phase":               resealed(headerBytes+26, 2),
		"collective":          resealed(headerBytes+28, actions.NumCollectives),
		"algorithm":           resealed(headerBytes+29, actions.NumAlgorithms),
		"protocol":            resealed(headerBytes+30, actions.NumProtocols),
		"damage and then EOF": change(len(good)-1, good[len(good)-1]^1),
	}
	for name, log := range cases {
		if _, err := Compare(bytes.NewReader(log)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v, want ErrFormat", name, err)
		}
	}
	failing := io.MultiReader(bytes.NewReader(good), &brokenReader{})
	if _, err := Compare(failing); !errors.Is(err, errBroken) {
		t.Errorf("a disk error: %v", err)
	}
}

var errBroken = errors.New("disk on fire")

type brokenReader struct{}

func (*brokenReader) Read([]byte) (int, error) { return 0, errBroken }

func TestDisagreements(t *testing.T) {
	base := []Record{call(0, 20), call(1, 10), call(2, 10), call(3, 10)}
	changes := map[string]func(*Record){
		"algorithm":    func(r *Record) { r.Algorithm = actions.Tree },
		"protocol":     func(r *Record) { r.Protocol = actions.Simple },
		"channels":     func(r *Record) { r.Channels = 3 },
		"max channels": func(r *Record) { r.MaxChannels = 5 },
		"chosen":       func(r *Record) { r.Chosen = false },
		"bytes":        func(r *Record) { r.Bytes = 2048 },
		"collective":   func(r *Record) { r.Collective = actions.AllGather },
		"order":        func(r *Record) { r.Seq = 7 },
		"communicator": func(r *Record) { r.Comm = 1 },
	}
	for name, change := range changes {
		other := append([]Record(nil), base...)
		change(&other[2])
		rep := mustCompare(t, logOf(0, base...), logOf(1, other...))
		if rep.Disagreements != 1 || len(rep.Details) != 1 || rep.Details[0].Seq != 2 || rep.Details[0].RankB != 1 || rep.Compared != 4 {
			t.Errorf("%s: %+v", name, rep)
		}
		if text := rep.Details[0].String(); !strings.Contains(text, "call 2") || !strings.Contains(text, "rank 1") {
			t.Errorf("%s: %s", name, text)
		}
	}
	h := header
	h.Ranks = 3
	third := append(encodeHeader(Header{Seed: h.Seed, Rank: 2, Ranks: 3, Comms: 2, Phases: 2, NCCLVersion: h.NCCLVersion}), encodeRecord(call(0, 10))...)
	if _, err := Compare(readers(logOf(0, base...), third)...); !errors.Is(err, ErrRuns) {
		t.Errorf("logs of different runs: %v", err)
	}
	if _, err := Compare(readers(logOf(0, base...), logOf(0, base...))...); !errors.Is(err, ErrRuns) {
		t.Errorf("two logs of one rank: %v", err)
	}
	if _, err := Compare(); !errors.Is(err, ErrRuns) {
		t.Errorf("no logs: %v", err)
	}
}

// Many disagreements are all counted and only a few told.
func TestManyDisagreements(t *testing.T) {
	var a, b []Record
	for i := range 100 {
		a, b = append(a, call(i, 10)), append(b, call(i, 12))
	}
	rep := mustCompare(t, logOf(0, a...), logOf(1, b...))
	if rep.Disagreements != 100 || len(rep.Details) != maxDetails {
		t.Errorf("%d disagreements, %d told", rep.Disagreements, len(rep.Details))
	}
}

// costs makes one bucket's calls.
func costs(phase int, us ...int) []Record {
	var rs []Record
	for i, c := range us {
		r := call(i, c)
		r.Phase = phase
		rs = append(rs, r)
	}
	return rs
}

func repeat(n int, us ...int) (all []int) {
	for range n {
		all = append(all, us...)
	}
	return all
}

func TestAdaptation(t *testing.T) {
	cases := []struct {
		name string
		us   []int
		want int
	}{
		{"good from the start", repeat(50, 10), 0},
		{"never", repeat(50, 20), -1},
		{"11 us is within 10%", repeat(50, 11), 0},
		{"12 us is not", repeat(50, 12), -1},
		{"after 7 calls", append(repeat(7, 20), repeat(50, 10)...), 7},
		{"luck before is not adaptation", append([]int{10, 20, 20, 20, 20, 20}, repeat(50, 10)...), 6},
		{"re-measuring now and then is no relapse", append(repeat(5, 20), repeat(5, 10, 10, 10, 10, 10, 10, 10, 10, 10, 20)...), 5},
		{"a relapse for good", append(repeat(20, 10), repeat(20, 20)...), -1},
		{"a relapse for a while", append(append(repeat(20, 10), repeat(10, 20)...), repeat(20, 10)...), 30},
	}
	for _, c := range cases {
		rep := mustCompare(t, logOf(0, costs(0, c.us...)...))
		b := rep.Phases[0].Buckets[0]
		if b.AdaptedAfter != c.want {
			t.Errorf("%s: adapted after %d, want %d", c.name, b.AdaptedAfter, c.want)
		}
	}
}

// The rule of adaptedAfter, word for word.
func adaptedAfterOracle(good []bool) int {
	share := func(calls []bool) float64 {
		n := 0
		for _, g := range calls {
			if g {
				n++
			}
		}
		return float64(n) / float64(len(calls))
	}
	for i := range good {
		if good[i] && share(good[i:]) >= 0.9 && share(good[i:min(i+10, len(good))]) >= 0.9 {
			return i
		}
	}
	return -1
}

func TestAdaptedAfterAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		good := rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 19), func(n int) bool { return n > 0 }), 0, 80).Draw(t, "good")
		bad := rapid.IntRange(0, len(good)).Draw(t, "bad calls first")
		clear(good[:bad])
		if got, want := adaptedAfter(good), adaptedAfterOracle(good); got != want {
			t.Fatalf("%v: %d, want %d", good, got, want)
		}
	})
}

func TestPhasesAndSums(t *testing.T) {
	records := append(costs(0, 20, 10, 10), costs(1, 20, 20)...)
	for i, us := range []int{20, 15, 10} {
		r := call(i, us)
		r.Comm, r.Bytes, r.Phase = 1, 4096, 1
		records = append(records, r)
	}
	rep := mustCompare(t, logOf(0, records...), logOf(1, records...))
	if rep.Calls != 8 || rep.Compared != 8 || rep.Chosen != 4 || len(rep.Phases) != 2 {
		t.Fatalf("%+v", rep)
	}
	want := []Sums{
		{Calls: 3, Chosen: 2, CostNs: 40000, DefaultNs: 60000, BestNs: 30000},
		{Calls: 5, Chosen: 2, CostNs: 85000, DefaultNs: 100000, BestNs: 50000},
	}
	for i, p := range rep.Phases {
		if p.Index != i || p.Sums != want[i] {
			t.Errorf("phase %d: %+v, want %+v", i, p.Sums, want[i])
		}
	}
	if got := rep.Phases[1]; len(got.Buckets) != 2 || got.Buckets[0].Comm != 0 || got.Buckets[1].Bytes != 4096 || got.OverDefault() != 0.85 || got.OverBest() != 1.7 {
		t.Errorf("phase 1: %+v", got)
	}
}

func TestMedians(t *testing.T) {
	phase := func(after ...int) Phase {
		var p Phase
		for _, n := range after {
			p.Buckets = append(p.Buckets, Bucket{AdaptedAfter: n})
		}
		return p
	}
	for _, c := range []struct {
		p     Phase
		calls int
		ok    bool
	}{
		{phase(), 0, false}, {phase(5), 5, true}, {phase(-1), 0, false}, {phase(1, 9, 3), 3, true},
		{phase(1, -1, 3), 3, true}, {phase(1, -1, -1), 0, false}, {phase(2, 4), 4, true}, {phase(2, -1), 0, false},
	} {
		if calls, ok := c.p.MedianAdapted(); calls != c.calls || ok != c.ok {
			t.Errorf("%+v: %d, %v, want %d, %v", c.p.Buckets, calls, ok, c.calls, c.ok)
		}
	}
}

func TestCompareFiles(t *testing.T) {
	dir := t.TempDir()
	var paths []string
	for rank := range 2 {
		path := filepath.Join(dir, string(rune('a'+rank)))
		if err := os.WriteFile(path, logOf(rank, call(0, 10), call(1, 10)), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	fromFiles, err := CompareFiles(paths...)
	if err != nil {
		t.Fatal(err)
	}
	if want := mustCompare(t, logOf(1, call(0, 10), call(1, 10)), logOf(0, call(0, 10), call(1, 10))); !reflect.DeepEqual(fromFiles, want) {
		t.Errorf("files gave %+v, memory in another order %+v", fromFiles, want)
	}
	if _, err := CompareFiles(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// FuzzDecoder: any bytes end in records, an error or the end, and what was decoded encodes to the same bytes.
func FuzzDecoder(f *testing.F) {
	f.Add(logOf(0, call(0, 20), call(1, 10)))
	f.Add(logOf(1)[:20])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := NewDecoder(bytes.NewReader(data))
		if err != nil {
			return
		}
		for i := 0; ; i++ {
			r, err := d.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, ErrFormat) {
					t.Fatalf("record %d: %v", i, err)
				}
				return
			}
			at := headerBytes + i*recordBytes
			again, in := encodeRecord(r), bytes.Clone(data[at:at+recordBytes])
			in[32] &= flagChosen | flagAggregated // bits and bytes that nothing is written into
			in[34], in[35] = 0, 0
			seal(in)
			if !bytes.Equal(again, in) {
				t.Fatalf("record %d: %+v was written as %x, read from %x", i, r, again, in)
			}
		}
	})
}
