package actions

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// Refusals stand beside rules: who reads one does not see the other.
func TestRefusalsRoundTrip(t *testing.T) {
	var all []Refusal
	for _, name := range []string{"Ring/LL128/24", "lsa/oneshot/8", "gin/proxy/16", "symmetric/LL"} {
		a, err := Parse(name)
		if err != nil {
			continue
		}
		all = append(all, Refusal{AllReduce, 16, a, 1, 8}, Refusal{AllGatherRegistered, NumSizeBuckets - 1, a, 2, 16})
	}
	rules := []Rule{{Collective: AllGather, MaxBytes: 9, Algorithm: Ring, Nodes: Any, Ranks: Any, PipeOps: Any, RegBuff: Any}}
	var b bytes.Buffer
	if err := errors.Join(WriteNCCLCSV(&b, rules), WriteRefusals(&b, all)); err != nil || len(all) < 4 {
		t.Fatal(err, all)
	}
	for line := range strings.Lines(b.String()) {
		if len(line) > csvMaxLine {
			t.Errorf("line of %d bytes falls apart in NCCL's reader: %s", len(line), line)
		}
	}
	back, err := ReadNCCLCSV(strings.NewReader(b.String()))
	refused, err2 := ReadRefusals(strings.NewReader(b.String()))
	if err != nil || err2 != nil || !slices.Equal(back, rules) || !slices.Equal(refused, all) {
		t.Errorf("%v, %v\n%v, %v\nof %s", back, err, refused, err2, b.String())
	}
}

func TestReadRefusalsIsStrict(t *testing.T) {
	for _, text := range []string{"allreduce,65536,Ring/LL,1", "bagel,65536,Ring/LL,1,8", "allreduce,65537,Ring/LL,1,8", "allreduce,0,Ring/LL,1,8", "allreduce,281474976710656,Ring/LL,1,8",
		"allreduce,65536,bagel,1,8", "allreduce,65536,default,1,8", "allreduce,65536,Ring/LL,0,8", "allreduce,65536,Ring/LL,1,-1", "allreduce,65536,Ring/LL,2,1"} {
		err := new(CSVError)
		if all, got := ReadRefusals(strings.NewReader("# text\n" + refusedPrefix + text + "\n")); !errors.As(got, &err) || err.Line != 2 || all != nil {
			t.Errorf("%q: %v, %v", text, all, got)
		}
	}
	if all, err := ReadRefusals(strings.NewReader("# refused, as people write it\n#refused,AllReduce, 65536, Ring/LL, 1, 8,,\r\n")); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}
