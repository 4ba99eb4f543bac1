package actions

import (
	"bufio"
	"fmt"
	"io"
	"math/bits"
	"strconv"
	"strings"
)

// Refusal is a choice that hung its ranks or gave wrong elements where somebody measured it: what to avoid, which NCCL's format cannot say.
// So it stands in a comment of ours, "#refused,COLLECTIVE,MIN_BYTES,CHOICE,nNodes,nRanks" for one size bucket, which NCCL's example
// passes over.
type Refusal struct {
	Collective   Collective
	Log2Bytes    uint8
	Action       Action
	Nodes, Ranks int
}

const refusedPrefix = "#refused,"

// WriteRefusals writes such lines.
func WriteRefusals(w io.Writer, all []Refusal) error {
	var b strings.Builder
	for _, r := range all {
		fmt.Fprintf(&b, "%s%s,%d,%s,%d,%d\n", refusedPrefix, strings.ToLower(r.Collective.String()), uint64(1)<<r.Log2Bytes, r.Action, r.Nodes, r.Ranks)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing refused choices: %w", err)
	}
	return nil
}

// ReadRules reads all of a file of NCCL's example tuner: its rules, and what it refuses.
func ReadRules(text string) (rules []Rule, refused []Refusal, err error) {
	if rules, err = ReadNCCLCSV(strings.NewReader(text)); err != nil {
		return nil, nil, err
	}
	refused, err = ReadRefusals(strings.NewReader(text))
	return rules, refused, err
}

// ReadRefusals reads them from a file of NCCL's example tuner. One that cannot be read is an error: passed over, it would run.
func ReadRefusals(r io.Reader) ([]Refusal, error) {
	var all []Refusal
	scanner := bufio.NewScanner(r)
	line := 1
	for ; scanner.Scan(); line++ {
		text, found := strings.CutPrefix(strings.TrimRight(scanner.Text(), " \t\r,"), refusedPrefix) // spreadsheets fill rows up
		if !found {
			continue
		}
		refusal, err := parseRefusal(text)
		if err != nil {
			return nil, &CSVError{line, "", err}
		}
		all = append(all, refusal)
	}
	if err := scanner.Err(); err != nil {
		return nil, &CSVError{line, "", fmt.Errorf("reading refused choices: %w", err)}
	}
	return all, nil
}

func parseRefusal(text string) (r Refusal, err error) {
	f := strings.Split(text, ",")
	if len(f) != 5 {
		return r, fmt.Errorf("%q: want %sCOLLECTIVE,MIN_BYTES,CHOICE,nNodes,nRanks: %w", text, refusedPrefix, ErrBadRule)
	}
	if r.Collective, err = ParseCollective(strings.TrimSpace(f[0])); err != nil {
		return r, err
	}
	least, err := strconv.ParseUint(strings.TrimSpace(f[1]), 10, 64)
	if err != nil || bits.OnesCount64(least) != 1 || least >= 1<<NumSizeBuckets {
		return r, fmt.Errorf("%q: want the least bytes of a size bucket, a power of two: %w", f[1], ErrBadRule)
	}
	r.Log2Bytes = uint8(bits.TrailingZeros64(least))
	if r.Action, err = Parse(strings.TrimSpace(f[2])); err != nil {
		return r, err
	}
	if r.Action == Default {
		return r, fmt.Errorf("NCCL's default cannot be refused: %w", ErrBadRule)
	}
	for i, n := range []*int{&r.Nodes, &r.Ranks} {
		if *n, err = strconv.Atoi(strings.TrimSpace(f[3+i])); err != nil || *n < 1 {
			return r, fmt.Errorf("%q: want at least 1 node and rank: %w", f[3+i], ErrBadRule)
		}
	}
	if r.Ranks < r.Nodes {
		return r, fmt.Errorf("%d ranks on %d nodes: %w", r.Ranks, r.Nodes, ErrBadRule)
	}
	return r, nil
}
