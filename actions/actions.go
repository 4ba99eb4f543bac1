package actions

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrUnknownName is returned when a collective, path, algorithm or protocol has a name that NCCL does not use.
var ErrUnknownName = errors.New("unknown name")

// Collective is ncclFunc_t. Only the collectives that NCCL asks a tuner about can be tuned.
type Collective uint8

// ncclFunc_t, src/include/nccl_common.h.
const (
	Broadcast     Collective = 0
	Reduce        Collective = 1
	AllGather     Collective = 2
	ReduceScatter Collective = 3
	AllReduce     Collective = 4

	NumCollectives = 5
)

// Path says who moves the data.
type Path uint8

// Paths. Later issues add LSA and GIN kernels of our own.
const (
	PathDefault    Path = 0 // NCCL's own choice, outputs of getCollInfo untouched
	PathCollective Path = 1 // an NCCL collective with algorithm and protocol named
	PathSymmetric  Path = 2 // NCCL's symmetric-memory kernels; not reachable through the tuner plugin
)

// Algorithm is NCCL_ALGO_*.
type Algorithm uint8

// NCCL_ALGO_*, src/include/plugin/nccl_tuner.h.
const (
	Tree          Algorithm = 0
	Ring          Algorithm = 1
	CollnetDirect Algorithm = 2
	CollnetChain  Algorithm = 3
	NVLS          Algorithm = 4
	NVLSTree      Algorithm = 5
	PAT           Algorithm = 6

	NumAlgorithms = 7
)

// Protocol is NCCL_PROTO_*.
type Protocol uint8

// NCCL_PROTO_*, src/include/plugin/nccl_tuner.h.
const (
	LL     Protocol = 0
	LL128  Protocol = 1
	Simple Protocol = 2

	NumProtocols = 3
)

var (
	collectiveNames = []string{"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"}
	pathNames       = []string{"default", "collective", "symmetric"}
	algorithmNames  = []string{"Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"}
	protocolNames   = []string{"LL", "LL128", "Simple"}
)

func name(names []string, i uint8, kind string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return kind + "(" + strconv.Itoa(int(i)) + ")"
}

func parse(names []string, s, kind string) (uint8, error) {
	folded := strings.ReplaceAll(s, "_", "")
	for i, n := range names {
		if strings.EqualFold(n, folded) {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%s %q: %w (one of %s)", kind, s, ErrUnknownName, strings.Join(names, ", "))
}

func (c Collective) String() string { return name(collectiveNames, uint8(c), "Collective") }
func (p Path) String() string       { return name(pathNames, uint8(p), "Path") }
func (a Algorithm) String() string  { return name(algorithmNames, uint8(a), "Algorithm") }
func (p Protocol) String() string   { return name(protocolNames, uint8(p), "Protocol") }

// ParseCollective reads NCCL's name of a collective in any case, with or without underscores.
func ParseCollective(s string) (Collective, error) {
	v, err := parse(collectiveNames, s, "collective")
	return Collective(v), err
}

// ParsePath reads the name of a path.
func ParsePath(s string) (Path, error) { v, err := parse(pathNames, s, "path"); return Path(v), err }

// ParseAlgorithm reads NCCL's name of an algorithm in any case, with or without underscores.
func ParseAlgorithm(s string) (Algorithm, error) {
	v, err := parse(algorithmNames, s, "algorithm")
	return Algorithm(v), err
}

// ParseProtocol reads NCCL's name of a protocol in any case.
func ParseProtocol(s string) (Protocol, error) {
	v, err := parse(protocolNames, s, "protocol")
	return Protocol(v), err
}

// Action is one choice for one call. The zero value is NCCL's default. Comparable, hence a map key.
type Action struct {
	Path      Path
	Algorithm Algorithm // meaning only for PathCollective
	Protocol  Protocol  // likewise
	Channels  uint8     // nChannels; 0: NCCL's own number
}

// Default is NCCL's own choice, the incumbent that every other choice must beat.
var Default = Action{}

// Word encodes the action as the 32-bit word of nccltuner/abi.h.
func (a Action) Word() uint32 {
	if a.Path == PathDefault {
		return 0
	}
	return uint32(a.Path&15) | uint32(a.Algorithm&15)<<4 | uint32(a.Protocol&15)<<8 | uint32(a.Channels)<<16
}

// FromWord decodes a 32-bit word of nccltuner/abi.h. Words that name nothing known are an error, never a default.
func FromWord(w uint32) (Action, error) {
	a := Action{Path(w & 15), Algorithm(w >> 4 & 15), Protocol(w >> 8 & 15), uint8(w >> 16)}
	switch {
	case w == 0:
		return Default, nil
	case w&0xff00f000 != 0 || a.Path == PathDefault || a.Path > PathSymmetric || a.Algorithm >= NumAlgorithms || a.Protocol >= NumProtocols:
		return Default, fmt.Errorf("action word %#x: %w", w, ErrUnknownName)
	}
	return a, nil
}

// String gives the action as people write it: "default", "Ring/LL128/24", "Tree/Simple" (NCCL's own channels).
func (a Action) String() string {
	switch a.Path {
	case PathDefault:
		return "default"
	case PathCollective:
		s := a.Algorithm.String() + "/" + a.Protocol.String()
		if a.Channels != 0 {
			s += "/" + strconv.Itoa(int(a.Channels))
		}
		return s
	}
	return a.Path.String()
}

// Parse reads what String writes.
func Parse(s string) (Action, error) {
	if s == "default" {
		return Default, nil
	}
	if s == "symmetric" {
		return Action{Path: PathSymmetric}, nil
	}
	parts := strings.Split(s, "/")
	if len(parts) < 2 || len(parts) > 3 {
		return Default, fmt.Errorf("action %q: want default, symmetric or ALGORITHM/PROTOCOL[/CHANNELS]: %w", s, ErrUnknownName)
	}
	algo, err := ParseAlgorithm(parts[0])
	if err != nil {
		return Default, err
	}
	proto, err := ParseProtocol(parts[1])
	if err != nil {
		return Default, err
	}
	a := Action{Path: PathCollective, Algorithm: algo, Protocol: proto}
	if len(parts) == 3 {
		n, err := strconv.ParseUint(parts[2], 10, 8)
		if err != nil || n == 0 {
			return Default, fmt.Errorf("action %q: channels must be 1 to 255", s)
		}
		a.Channels = uint8(n)
	}
	return a, nil
}
