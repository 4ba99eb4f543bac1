package actions

import (
	"fmt"
	"strconv"
	"strings"
)

// Action is one choice for one call. The zero value is NCCL's default. Comparable, hence a map key.
type Action struct {
	Path      Path
	Algorithm Algorithm // meaning only for PathCollective
	Protocol  Protocol  // likewise
	Kernel    Kernel    // meaning only for PathLSA
	Channels  uint8     // nChannels, or CTAs of our own kernels; 0: NCCL's or the kernel's own number
	Warps     uint8     // threads of a channel or CTA / 32; 0: likewise
	Backend   Backend   // of PathGIN
	Contexts  uint8     // of PathGIN: that its CTAs share; 0: as many as NCCL has granted
	Flat      bool      // of PathGIN: ranks put to each other alike, also where nodes of several ranks have a hierarchical kernel
	Symmetric Symmetric // of PathSymmetric
}

// Default is NCCL's own choice, the incumbent that every other choice must beat.
var Default = Action{}

// WarpThreads is the threads of a warp.
const WarpThreads = 32

// Kind is the action without its numbers. What differs in channels, CTAs and threads alone is of one kind; what ran may
// have others than were asked for, since small calls get fewer. Contexts are no such number: how many there are is how a kernel uses
// the network, and it gets what it asks for.
func (a Action) Kind() Action {
	a.Channels, a.Warps = 0, 0
	return a
}

// Ours says that kernels of ours run it, in NCCL's place.
func (a Action) Ours() bool { return a.Path == PathLSA || a.Path == PathGIN }

// Word encodes the action as the 32-bit word of nccltuner/abi.h, where algorithm, kernel and symmetric kernel have one place, and
// protocol and contexts with flat.
func (a Action) Word() uint32 {
	if a.Path == PathDefault {
		return 0
	}
	return uint32(a.Path&15) | uint32(a.Algorithm&15)<<4 | uint32(a.Kernel&15)<<4 | uint32(a.Symmetric&15)<<4 | uint32(a.Protocol&15)<<8 | uint32(a.Contexts&7)<<8 | flatBit(a.Flat)<<8 | uint32(a.Backend&15)<<12 |
		uint32(a.Channels)<<16 | uint32(a.Warps)<<24
}

// DYN_GIN_FLAT of nccltuner/abi.h, and DYN_GIN_SLOT_BYTES: AllReduce over GIN of fewer bytes has no hierarchical kernel.
const (
	GINFlat      = 8
	GINSlotBytes = 256 << 10
)

func flatBit(flat bool) uint32 {
	if flat {
		return GINFlat
	}
	return 0
}

// FromWord decodes a 32-bit word of nccltuner/abi.h. Words that name nothing known are an error, never a default.
func FromWord(w uint32) (Action, error) {
	if w == 0 {
		return Default, nil
	}
	a := Action{Path: Path(w & 15), Backend: Backend(w >> 12 & 15), Channels: uint8(w >> 16), Warps: uint8(w >> 24)}
	switch a.Path {
	case PathLSA:
		a.Kernel = Kernel(w >> 4 & 15)
	case PathSymmetric:
		a.Symmetric = Symmetric(w >> 4 & 15)
	default:
		a.Algorithm = Algorithm(w >> 4 & 15)
	}
	if a.Path == PathGIN {
		a.Contexts, a.Flat = uint8(w>>8&(GINFlat-1)), w>>8&GINFlat != 0
	} else {
		a.Protocol = Protocol(w >> 8 & 15)
	}
	if err := a.Check(); err != nil || a.Path == PathDefault {
		return Default, fmt.Errorf("action word %#x: %w", w, ErrUnknownName)
	}
	return a, nil
}

// Check reports a field that names nothing known, or that the path does not have.
func (a Action) Check() error {
	switch {
	case a.Path >= NumPaths || a.Algorithm >= NumAlgorithms || a.Protocol >= NumProtocols || a.Kernel >= NumKernels || a.Backend >= NumBackends || a.Symmetric >= NumSymmetric:
		return fmt.Errorf("action %+v: %w", a, ErrUnknownName)
	case a.Path == PathDefault && a != Default:
		return fmt.Errorf("action %+v: path default has no other fields: %w", a, ErrUnknownName)
	case a.Path != PathCollective && (a.Algorithm != 0 || a.Protocol != 0):
		return fmt.Errorf("action %+v: only path collective has an algorithm and a protocol: %w", a, ErrUnknownName)
	case a.Path != PathLSA && a.Kernel != 0:
		return fmt.Errorf("action %+v: only path lsa has a kernel: %w", a, ErrUnknownName)
	case a.Path == PathLSA && (a.Channels > MaxCTAs || int(a.Warps)*WarpThreads > CTAThreads):
		return fmt.Errorf("action %+v: our kernels have at most %d CTAs of %d threads: %w", a, MaxCTAs, CTAThreads, ErrUnknownName)
	case a.Path != PathGIN && a.Backend != BackendNone:
		return fmt.Errorf("action %+v: only path gin has a backend: %w", a, ErrUnknownName)
	case a.Contexts > MaxContexts || a.Contexts != 0 && a.Path != PathGIN:
		return fmt.Errorf("action %+v: only path gin has contexts, at most %d: %w", a, MaxContexts, ErrUnknownName)
	case a.Flat && a.Path != PathGIN:
		return fmt.Errorf("action %+v: only path gin is flat or hierarchical: %w", a, ErrUnknownName)
	case a.Path != PathSymmetric && a.Symmetric != SymmetricAny:
		return fmt.Errorf("action %+v: only path symmetric has a symmetric kernel: %w", a, ErrUnknownName)
	case a.Path == PathSymmetric && (a.Channels != 0 || a.Warps != 0):
		return fmt.Errorf("action %+v: path symmetric has no channels and threads: %w", a, ErrUnknownName)
	}
	return nil
}

// String gives the action as people write it: "default", "Ring/LL128/24", "Tree/Simple" (NCCL's own channels),
// "Ring/LL/8/t256" (8 channels of 256 threads), "lsa/twoshot/16" (16 CTAs), "lsa/oneshot" (the kernel's own), "gin/proxy/4",
// "gin/proxy/8/c2" (8 CTAs that share 2 contexts), "gin/gdaki/4/flat" (not the hierarchical kernel), "symmetric/AGxLL_R".
func (a Action) String() string {
	s := a.Path.String()
	switch a.Path {
	case PathCollective:
		s = a.Algorithm.String() + "/" + a.Protocol.String()
	case PathLSA:
		s += "/" + a.Kernel.String()
	}
	if a.Symmetric != SymmetricAny {
		s += "/" + a.Symmetric.String()
	}
	if a.Backend != BackendNone {
		s += "/" + a.Backend.String()
	}
	if a.Channels != 0 {
		s += "/" + strconv.Itoa(int(a.Channels))
	}
	if a.Contexts != 0 {
		s += "/" + FormatContexts(a.Contexts)
	}
	if a.Warps != 0 {
		s += "/" + FormatThreads(a.Warps)
	}
	if a.Flat {
		s += "/" + flatName
	}
	return s
}

const flatName = "flat"

// FormatWay writes what a kernel on GIN has of contexts and flatness: "c2", "flat", "c2/flat", or "-".
func (a Action) FormatWay() string {
	switch {
	case a.Flat && a.Contexts != 0:
		return FormatContexts(a.Contexts) + "/" + flatName
	case a.Flat:
		return flatName
	case a.Contexts != 0:
		return FormatContexts(a.Contexts)
	}
	return "-"
}

// ParseWay reads what FormatWay writes; how many contexts there can be is not asked here.
func ParseWay(s string) (contexts uint8, flat, ok bool) {
	if s == "-" {
		return 0, false, true
	}
	rest, flat := strings.CutSuffix("/"+s, "/"+flatName)
	if rest == "" {
		return 0, true, true
	}
	contexts, ok = ParseContexts(rest[1:])
	return contexts, flat, ok
}

// FormatContexts writes how many contexts CTAs share: "c2".
func FormatContexts(n uint8) string { return "c" + strconv.Itoa(int(n)) }

// ParseContexts reads what FormatContexts writes; how many there can be is not asked here.
func ParseContexts(s string) (uint8, bool) {
	number, is := strings.CutPrefix(s, "c")
	n, err := strconv.ParseUint(number, 10, 8)
	return uint8(n), is && err == nil && n > 0
}

// FormatThreads writes the threads of so many warps as String does; "": the kernel's own.
func FormatThreads(warps uint8) string {
	if warps == 0 {
		return ""
	}
	return "t" + strconv.Itoa(int(warps)*WarpThreads)
}

// ParseThreads reads what FormatThreads writes, into warps; how many there can be is not asked here.
func ParseThreads(s string) (uint8, bool) {
	number, is := strings.CutPrefix(s, "t")
	n, err := strconv.ParseUint(number, 10, 16)
	return uint8(n / WarpThreads), is && err == nil && n > 0 && n%WarpThreads == 0 && n/WarpThreads <= 255
}

// Parse reads what String writes.
func Parse(s string) (Action, error) {
	parts := strings.Split(s, "/")
	var a Action
	rest := parts[1:]
	path, err := ParsePath(parts[0])
	switch {
	case err == nil && path != PathCollective && path.String() == parts[0]:
		a.Path = path
		switch {
		case path == PathLSA && len(rest) == 0:
			return Default, fmt.Errorf("action %q: want lsa/KERNEL[/CTAS][/tTHREADS] with a kernel of %s: %w", s, strings.Join(kernelNames, ", "), ErrUnknownName)
		case path == PathLSA:
			if a.Kernel, err = ParseKernel(rest[0]); err != nil {
				return Default, err
			}
			rest = rest[1:]
		case path == PathSymmetric && len(rest) == 1:
			if a.Symmetric, err = ParseSymmetric(rest[0]); err != nil || a.Symmetric == SymmetricAny {
				return Default, fmt.Errorf("action %q: want symmetric or symmetric/KERNEL with a kernel of %s: %w", s, strings.Join(symmetricNames[1:], ", "), ErrUnknownName)
			}
			rest = rest[1:]
		case path == PathGIN && len(rest) > 0:
			if b, err := ParseBackend(rest[0]); err == nil && b != BackendNone {
				a.Backend, rest = b, rest[1:]
			}
		}
	case len(parts) < 2:
		return Default, fmt.Errorf("action %q: want a path (%s) or ALGORITHM/PROTOCOL[/CHANNELS][/tTHREADS]: %w", s, strings.Join(pathNames, ", "), ErrUnknownName)
	default:
		a.Path = PathCollective
		if a.Algorithm, err = ParseAlgorithm(parts[0]); err != nil {
			return Default, err
		}
		if a.Protocol, err = ParseProtocol(parts[1]); err != nil {
			return Default, err
		}
		rest = parts[2:]
	}
	for i, part := range rest {
		warps, isThreads := ParseThreads(part)
		contexts, isContexts := ParseContexts(part)
		n, err := strconv.ParseUint(part, 10, 16)
		switch {
		case part == flatName && a.Path == PathGIN && i == len(rest)-1:
			a.Flat = true
		case isContexts && a.Path == PathGIN && a.Contexts == 0 && a.Warps == 0 && contexts <= MaxContexts:
			a.Contexts = contexts
		case strings.HasPrefix(part, "c"):
			return Default, fmt.Errorf("action %q: only path gin has contexts, c1 to c%d behind its CTAs: %w", s, MaxContexts, ErrUnknownName)
		case isThreads && i >= len(rest)-2 && a.Warps == 0:
			a.Warps = warps
		case strings.HasPrefix(part, "t"):
			return Default, fmt.Errorf("action %q: threads must be a multiple of %d up to %d: %w", s, WarpThreads, 255*WarpThreads, ErrUnknownName)
		case i > 0 || err != nil || n == 0 || n > 255:
			return Default, fmt.Errorf("action %q: channels must be 1 to 255: %w", s, ErrUnknownName)
		default:
			a.Channels = uint8(n)
		}
	}
	if err := a.Check(); err != nil {
		return Default, err
	}
	return a, nil
}
