package actions

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Any is the wildcard of NCCL's example tuner CSV.
const Any = -1

// Rule is one line of the CSV that NCCL's example tuner plugin reads (plugins/tuner/example, v2.30.7). The first rule
// that matches a call decides. A file keeps its rules exactly through ReadNCCLCSV and WriteNCCLCSV; comments, blank
// lines and spacing are not kept.
type Rule struct {
	Collective Collective
	MinBytes   uint64
	MaxBytes   uint64 // inclusive
	Algorithm  Algorithm
	Protocol   Protocol
	// Channels is Any or 0 for NCCL's own number. Any is what NCCL documents, but its example then asks for one
	// channel (getCollInfo starts with *nChannels = 1); 0 is passed on, and NCCL takes 0 as its own number. We write 0.
	Channels int
	Nodes    int // Any or >= 1
	Ranks    int // Any or >= 1
	PipeOps  int // numPipeOps, Any or >= 0
	RegBuff  int // Any, 0 or 1
}

// ErrBadRule is returned for a rule that could never match or that NCCL's example would read as another one.
var ErrBadRule = errors.New("bad rule")

// CSVError says where a file is wrong.
type CSVError struct {
	Line  int    // from 1
	Field string // NCCL's name of the field; "" when the whole line is wrong
	Err   error
}

func (e *CSVError) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("line %d: %v", e.Line, e.Err)
	}
	return fmt.Sprintf("line %d, field %s: %v", e.Line, e.Field, e.Err)
}

func (e *CSVError) Unwrap() error { return e.Err }

var csvFields = [...]string{"collective_type", "min_bytes", "max_bytes", "algorithm", "protocol", "channels",
	"nNodes", "nRanks", "numPipeOps", "regBuff"}

const (
	csvRequiredFields = 8   // up to nRanks; the other two default to Any
	csvMaxLine        = 254 // NCCL's example reads lines with a 256 byte fgets: a longer one falls into two
)

// Names as NCCL's example compares them, case and all. It takes every other name for allreduce, ring or simple without
// a word, hence nothing else is read or written here.
var (
	csvCollectives = []string{"broadcast", "reduce", "allgather", "reducescatter", "allreduce"}
	csvAlgorithms  = []string{"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"}
	csvProtocols   = []string{"ll", "ll128", "simple"}
)

// ReadNCCLCSV reads a file of NCCL's example tuner. It is stricter than the example, which gives unknown names a
// default, drops lines with too few fields and shifts fields over an empty one: all of these are errors here.
func ReadNCCLCSV(r io.Reader) ([]Rule, error) {
	var rules []Rule
	scanner := bufio.NewScanner(r)
	line := 1
	for ; scanner.Scan(); line++ {
		text := strings.TrimSuffix(scanner.Text(), "\r")
		if strings.HasPrefix(text, "#") || strings.Trim(text, " \t") == "" || isCSVHeader(text) {
			continue
		}
		rule, field, err := parseRule(text)
		if err != nil {
			return nil, &CSVError{line, field, err}
		}
		rules = append(rules, rule)
	}
	if err := scanner.Err(); err != nil {
		return nil, &CSVError{line, "", fmt.Errorf("reading NCCL tuner CSV: %w", err)}
	}
	return rules, nil
}

// isCSVHeader recognises the column headers that NCCL's README advises for spreadsheets.
func isCSVHeader(text string) bool {
	all := strings.Join(csvFields[:], ",")
	return text == all || text == strings.Join(csvFields[:csvRequiredFields], ",")
}

func parseRule(text string) (rule Rule, field string, err error) {
	if len(text) > csvMaxLine {
		return rule, "", fmt.Errorf("%d bytes, NCCL reads at most %d: %w", len(text), csvMaxLine, ErrBadRule)
	}
	fields := strings.Split(text, ",")
	for i := range fields {
		fields[i] = strings.Trim(fields[i], " \t")
	}
	// Spreadsheets fill short rows up with empty cells; at the end they mean what NCCL makes of them: nothing.
	for len(fields) > csvRequiredFields && len(fields) <= len(csvFields) && fields[len(fields)-1] == "" {
		fields = fields[:len(fields)-1]
	}
	if len(fields) < csvRequiredFields || len(fields) > len(csvFields) {
		return rule, "", fmt.Errorf("%d fields, want %d to %d (%s): %w", len(fields), csvRequiredFields, len(csvFields),
			strings.Join(csvFields[:], ","), ErrBadRule)
	}
	p := ruleParser{fields: fields}
	rule = Rule{
		Collective: Collective(p.name(0, csvCollectives)),
		MinBytes:   p.bytes(1),
		MaxBytes:   p.bytes(2),
		Algorithm:  Algorithm(p.name(3, csvAlgorithms)),
		Protocol:   Protocol(p.name(4, csvProtocols)),
		Channels:   p.number(5),
		Nodes:      p.number(6),
		Ranks:      p.number(7),
		PipeOps:    p.number(8),
		RegBuff:    p.number(9),
	}
	if p.err != nil {
		return Rule{}, p.field, p.err
	}
	if field, err = rule.check(); err != nil {
		return Rule{}, field, err
	}
	return rule, "", nil
}

// ruleParser keeps the first error so that a line reads as a list of its fields.
type ruleParser struct {
	fields []string
	field  string
	err    error
}

func (p *ruleParser) fail(i int, err error) {
	if p.err == nil {
		p.field, p.err = csvFields[i], err
	}
}

func (p *ruleParser) name(i int, names []string) int {
	for n, name := range names {
		if p.fields[i] == name {
			return n
		}
	}
	p.fail(i, fmt.Errorf("%q: %w (NCCL's example knows %s)", p.fields[i], ErrUnknownName, strings.Join(names, ", ")))
	return 0
}

func (p *ruleParser) bytes(i int) uint64 {
	n, err := strconv.ParseUint(p.fields[i], 10, 64)
	if err != nil {
		p.fail(i, fmt.Errorf("%q: want a number of bytes: %w", p.fields[i], ErrBadRule))
	}
	return n
}

func (p *ruleParser) number(i int) int {
	if i >= len(p.fields) {
		return Any
	}
	n, err := strconv.ParseInt(p.fields[i], 10, 32) // NCCL's example reads an int
	if err != nil {
		p.fail(i, fmt.Errorf("%q: want a number or -1: %w", p.fields[i], ErrBadRule))
	}
	return int(n)
}

// check names the first field that cannot mean anything.
func (r Rule) check() (field string, err error) {
	bad := func(i int, format string, args ...any) (string, error) {
		return csvFields[i], fmt.Errorf(format+": %w", append(args, ErrBadRule)...)
	}
	switch {
	case r.Collective >= NumAsked:
		return bad(0, "%d is not a collective", r.Collective)
	case r.MinBytes > r.MaxBytes:
		return bad(2, "%d is below min_bytes %d", r.MaxBytes, r.MinBytes)
	case r.Algorithm >= NumAlgorithms:
		return bad(3, "%d is not an algorithm", r.Algorithm)
	case r.Protocol >= NumProtocols:
		return bad(4, "%d is not a protocol", r.Protocol)
	case r.Channels < Any || r.Channels > math.MaxUint8:
		return bad(5, "%d: want -1 to %d", r.Channels, math.MaxUint8)
	case r.Nodes != Any && (r.Nodes < 1 || r.Nodes > math.MaxInt32):
		return bad(6, "%d: want -1 or at least 1", r.Nodes)
	case r.Ranks != Any && (r.Ranks < 1 || r.Ranks > math.MaxInt32):
		return bad(7, "%d: want -1 or at least 1", r.Ranks)
	case r.PipeOps < Any || r.PipeOps > math.MaxInt32:
		return bad(8, "%d: want -1 or more", r.PipeOps)
	case r.RegBuff < Any || r.RegBuff > 1:
		return bad(9, "%d: want -1, 0 or 1", r.RegBuff)
	}
	return "", nil
}

// WriteNCCLCSV writes rules so that NCCL's example tuner and ReadNCCLCSV read exactly these back.
func WriteNCCLCSV(w io.Writer, rules []Rule) error {
	var b strings.Builder
	b.WriteString("# " + strings.Join(csvFields[:], ",") + "\n")
	b.WriteString("# channels 0: NCCL's own number (its example turns -1 into one channel, and calls that no line\n" +
		"# matches into one channel as well)\n")
	for i, r := range rules {
		if field, err := r.check(); err != nil {
			return fmt.Errorf("writing rule %d, field %s: %w", i+1, field, err)
		}
		fmt.Fprintf(&b, "%s,%d,%d,%s,%s,%d,%d,%d,%d,%d\n", csvCollectives[r.Collective], r.MinBytes, r.MaxBytes,
			csvAlgorithms[r.Algorithm], csvProtocols[r.Protocol], r.Channels, r.Nodes, r.Ranks, r.PipeOps, r.RegBuff)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing NCCL tuner CSV: %w", err)
	}
	return nil
}
