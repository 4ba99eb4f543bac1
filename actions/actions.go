package actions

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrUnknownName is returned when a collective, path, algorithm, protocol or kernel has a name that nobody uses.
var ErrUnknownName = errors.New("unknown name")

// Collective is ncclFunc_t of the collectives that NCCL asks a tuner about, AllToAll, about which it asks nobody, and four of them on
// memory that the program has registered with NCCL, where other kernels can run: collectives of their own to all that is learned.
type Collective uint8

// ncclFunc_t, src/include/nccl_common.h; AllToAll is DYN_ALL_TO_ALL of nccltuner/plugin/datatype.h, whose choices are
// NCCL's default and our own kernels.
const (
	Broadcast     Collective = 0
	Reduce        Collective = 1
	AllGather     Collective = 2
	ReduceScatter Collective = 3
	AllReduce     Collective = 4
	AllToAll      Collective = 5

	AllGatherRegistered     = AllGather + registered
	ReduceScatterRegistered = ReduceScatter + registered
	AllReduceRegistered     = AllReduce + registered
	AllToAllRegistered      = AllToAll + registered

	NumAsked       = 5 // NCCL asks about these
	NumCollectives = 10

	registered Collective = 4 // DYN_REGISTERED
)

// Registered says that it is one on registered memory.
func (c Collective) Registered() bool { return c >= AllGatherRegistered && c <= AllToAllRegistered }

// OnRegistered is the same collective on registered memory; false: it is no other there.
func (c Collective) OnRegistered() (Collective, bool) {
	return c + registered, c >= AllGather && c <= AllToAll
}

// Plain is the same collective on whatever memory.
func (c Collective) Plain() Collective {
	if c.Registered() {
		return c - registered
	}
	return c
}

// Path says who moves the data.
type Path uint8

// Paths. Ranks run the first two, the third on registered memory, the fourth where they have opened each other's memory, and the fifth
// where GIN is active; learners can weigh all.
const (
	PathDefault    Path = 0 // NCCL's own choice, outputs of getCollInfo untouched
	PathCollective Path = 1 // an NCCL collective with algorithm and protocol named
	PathSymmetric  Path = 2 // NCCL's symmetric-memory kernels, on registered memory, by name; not reachable through the tuner plugin
	PathLSA        Path = 3 // our own kernels over load and store within an NVLink domain
	PathGIN        Path = 4 // our own kernels that put and signal over the network

	NumPaths = 5
)

// Kernel is DYN_KERNEL_* of nccltuner/abi.h: which of our kernels PathLSA runs (kernels/device).
type Kernel uint8

// Kernels. Not every collective has each of them; ranks say which they can run (dyn_rank.marks).
const (
	OneShot Kernel = 0 // every rank writes what it has into every peer's memory, in lines that say that they are whole
	TwoShot Kernel = 1 // AllReduce: to the rank that adds it up, and its sums to all, in lines
	Bulk    Kernel = 2 // barriers in place of lines; AllReduce in two shots
	Direct  Kernel = 3 // as Bulk, into and out of buffers that all ranks have registered, where they have

	NumKernels = 4
)

// Symmetric is DYN_SYMMETRIC_* of nccltuner/abi.h: which of NCCL's kernels PathSymmetric names.
type Symmetric uint8

// Symmetric kernels, as NCCL 2.32.3 spells them. Each is of one collective, but LL of two; NCCL takes a name for all that begin
// with it, so LL is LL or LLMC, ST is ST or STMC, and LD is LD or LDMC.
const (
	SymmetricAny        Symmetric = 0 // whichever NCCL takes
	SymmetricLL         Symmetric = 1 // AllGather, ReduceScatter
	SymmetricLLMC       Symmetric = 2 // AllGather
	SymmetricST         Symmetric = 3
	SymmetricSTMC       Symmetric = 4
	SymmetricTmaST      Symmetric = 5
	SymmetricTmaSTMC    Symmetric = 6
	SymmetricLD         Symmetric = 7 // ReduceScatter
	SymmetricLDMC       Symmetric = 8
	SymmetricTmaLD      Symmetric = 9
	SymmetricAGxLL      Symmetric = 10 // AllReduce
	SymmetricAGxLLMC    Symmetric = 11
	SymmetricRSxLDAGxST Symmetric = 12
	SymmetricRSxLDMC    Symmetric = 13
	SymmetricRSxTmaLD   Symmetric = 14

	NumSymmetric = 15
)

// Names says that NCCL has such a kernel for the collective.
func (s Symmetric) Names(c Collective) bool {
	switch c.Plain() {
	case AllGather:
		return s >= SymmetricLL && s <= SymmetricTmaSTMC
	case ReduceScatter:
		return s == SymmetricLL || s >= SymmetricLD && s <= SymmetricTmaLD
	case AllReduce:
		return s >= SymmetricAGxLL && s < NumSymmetric
	}
	return false
}

// What a kernel can be launched with: DYN_KERNEL_MAX_BLOCKS and DYN_KERNEL_THREADS of kernels/device/call.h. Where an action
// names no threads, a CTA has as many as do its share in one pass, from a quarter of these on (kernels/host/launch.c).
const (
	MaxCTAs    = 128
	CTAThreads = 512 // at most

	CTABytes = CTAThreads / 8 * 120 // of a call that a CTA covers in one pass: eight threads have a line of 120 bytes
)

// MaxContexts is NCCL_GIN_MAX_CONTEXTS: so many, at most, NCCL grants to a communicator, and CTAs of PathGIN share.
const MaxContexts = 4

// Backend is who drives the NIC for PathGIN.
type Backend uint8

// Backends of GIN, src/include/nccl_device/gin, and DYN_BACKEND_* of nccltuner/abi.h. Which one a communicator has NCCL says.
const (
	BackendNone  Backend = 0 // not a GIN action, or NCCL's own choice
	BackendGDAKI Backend = 1 // the GPU rings the NIC's doorbell
	BackendProxy Backend = 2 // a CPU thread does

	NumBackends = 3
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
	collectiveNames = []string{"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "AllToAll",
		"AllGatherRegistered", "ReduceScatterRegistered", "AllReduceRegistered", "AllToAllRegistered"}
	symmetricNames = []string{"any", "LL", "LLMC", "ST", "STMC", "TmaST", "TmaSTMC", "LD", "LDMC", "TmaLD",
		"AGxLL_R", "AGxLLMC_R", "RSxLD_AGxST", "RSxLDMC_AGxSTMC", "RSxTmaLD_AGxTmaST"}
	pathNames      = []string{"default", "collective", "symmetric", "lsa", "gin"}
	kernelNames    = []string{"oneshot", "twoshot", "bulk", "direct"}
	backendNames   = []string{"none", "gdaki", "proxy"}
	algorithmNames = []string{"Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"}
	protocolNames  = []string{"LL", "LL128", "Simple"}
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
		if strings.EqualFold(strings.ReplaceAll(n, "_", ""), folded) {
			return uint8(i), nil
		}
	}
	return 0, fmt.Errorf("%s %q: %w (one of %s)", kind, s, ErrUnknownName, strings.Join(names, ", "))
}

func (c Collective) String() string { return name(collectiveNames, uint8(c), "Collective") }
func (p Path) String() string       { return name(pathNames, uint8(p), "Path") }
func (a Algorithm) String() string  { return name(algorithmNames, uint8(a), "Algorithm") }
func (p Protocol) String() string   { return name(protocolNames, uint8(p), "Protocol") }
func (k Kernel) String() string     { return name(kernelNames, uint8(k), "Kernel") }
func (b Backend) String() string    { return name(backendNames, uint8(b), "Backend") }
func (s Symmetric) String() string  { return name(symmetricNames, uint8(s), "Symmetric") }

// ParseCollective reads NCCL's name of a collective in any case, with or without underscores.
func ParseCollective(s string) (Collective, error) {
	v, err := parse(collectiveNames, s, "collective")
	return Collective(v), err
}

// ParsePath reads the name of a path.
func ParsePath(s string) (Path, error) { v, err := parse(pathNames, s, "path"); return Path(v), err }

// ParseKernel reads the name of one of our kernels in any case, with or without underscores.
func ParseKernel(s string) (Kernel, error) {
	v, err := parse(kernelNames, s, "kernel")
	return Kernel(v), err
}

// ParseSymmetric reads NCCL's name of a symmetric kernel in any case, with or without underscores.
func ParseSymmetric(s string) (Symmetric, error) {
	v, err := parse(symmetricNames, s, "symmetric kernel")
	return Symmetric(v), err
}

// ParseBackend reads the name of a GIN backend.
func ParseBackend(s string) (Backend, error) {
	v, err := parse(backendNames, s, "backend")
	return Backend(v), err
}

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
