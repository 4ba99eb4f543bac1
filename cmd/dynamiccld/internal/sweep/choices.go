package sweep

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"dynamiccl/actions"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// anything is a part of a pattern that every choice fits.
const anything = -1

// Pattern picks choices: ALGORITHM/PROTOCOL/CHANNELS, lsa/KERNEL/CTAS/THREADS, gin/BACKEND/CTAS/CONTEXTS or symmetric/KERNEL, where * or a part that is missing at the end fits
// everything, and "default", which is measured always, nothing.
type Pattern struct {
	path                int // what it names decides that
	algorithm, protocol int
	kernel, backend     int
	symmetric           int
	number              int // of channels or CTAs
	contexts            int // of gin
	flat                int // of gin: 1, or not: 0
	warps               int // of a CTA of lsa
}

var (
	everything  = Pattern{anything, anything, anything, anything, anything, anything, anything, anything, anything, anything}
	onlyDefault = Pattern{-2, -2, -2, -2, -2, -2, -2, -2, -2, -2}
)

// ParsePattern reads "ring/ll128/*", "tree/*/8", "ring", "lsa", "lsa/twoshot", "lsa/*/16", "gin", "gin/proxy/4",
// "gin/*/8/c2", "gin/*/*/c1", "gin/*/8/*", "gin/*/8/flat", "gin/*/8/c1/flat", "symmetric", "symmetric/ST". flat is the kernel that is not
// hierarchical; without it both are meant. "lsa/bulk/64/t256" has CTAs of 256 threads, and not as many as the kernel takes by itself.
func ParsePattern(s string) (Pattern, error) {
	if strings.EqualFold(s, actions.Default.String()) {
		return onlyDefault, nil
	}
	p := everything
	parts := strings.Split(s, "/")
	most := 3
	switch {
	case strings.EqualFold(parts[0], actions.PathGIN.String()):
		most = 5
	case strings.EqualFold(parts[0], actions.PathLSA.String()):
		most = 4
	}
	if len(parts) > most {
		return p, fmt.Errorf("choice %q: want ALGORITHM/PROTOCOL/CHANNELS, lsa/KERNEL/CTAS[/tTHREADS] or gin/BACKEND/CTAS[/cCONTEXTS][/flat] with * for any, like ring/ll128/*, tree/*/8, lsa/*/16, gin/*/4 or gin/*/8/c2", s)
	}
	for i, part := range parts {
		if part == "*" {
			continue
		}
		var err error
		switch {
		case i == 0 && strings.EqualFold(part, actions.PathLSA.String()):
			p.path = int(actions.PathLSA)
		case i == 0 && strings.EqualFold(part, actions.PathGIN.String()):
			p.path = int(actions.PathGIN)
		case i == 0 && strings.EqualFold(part, actions.PathSymmetric.String()):
			p.path = int(actions.PathSymmetric)
		case i == 0:
			p.path = int(actions.PathCollective)
			var a actions.Algorithm
			a, err = actions.ParseAlgorithm(part)
			p.algorithm = int(a)
		case i == 1 && p.path == int(actions.PathLSA):
			var k actions.Kernel
			k, err = actions.ParseKernel(part)
			p.kernel = int(k)
		case i == 1 && p.path == int(actions.PathGIN):
			var b actions.Backend
			b, err = actions.ParseBackend(part)
			p.backend = int(b)
		case i == 1 && p.path == int(actions.PathSymmetric):
			var k actions.Symmetric
			k, err = actions.ParseSymmetric(part)
			p.symmetric = int(k)
		case i == 1: // our kernels have no protocol
			p.path = int(actions.PathCollective)
			var proto actions.Protocol
			proto, err = actions.ParseProtocol(part)
			p.protocol = int(proto)
		case i == 2:
			p.number, err = parseNumber(part, p.path)
		case i == len(parts)-1 && i >= 3 && strings.EqualFold(part, "flat"):
			p.flat = 1
		case i == 3 && p.path == int(actions.PathLSA):
			p.warps, err = parseThreads(part)
		case i == 3:
			p.contexts, err = parseContexts(part)
		default:
			err = fmt.Errorf("%q behind contexts: only flat may stand there", part)
		}
		if err != nil {
			return everything, fmt.Errorf("choice %q: %w", s, err)
		}
	}
	return p, nil
}

func parseNumber(text string, path int) (int, error) {
	what, most := "channels", uint64(math.MaxUint8)
	switch path {
	case int(actions.PathLSA):
		what, most = "CTAs", actions.MaxCTAs
	case int(actions.PathGIN):
		what = "CTAs"
	}
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n == 0 || n > most {
		return 0, fmt.Errorf("%s must be 1 to %d or *", what, most)
	}
	return int(n), nil
}

func parseContexts(text string) (int, error) {
	n, is := actions.ParseContexts(text)
	if !is || n > actions.MaxContexts {
		return 0, fmt.Errorf("contexts must be c1 to c%d or *", actions.MaxContexts)
	}
	return int(n), nil
}

func parseThreads(text string) (int, error) {
	warps, is := actions.ParseThreads(text)
	if !is || int(warps)*actions.WarpThreads > actions.CTAThreads {
		return 0, fmt.Errorf("threads must be t%d to t%d, in steps of %d, or *", actions.WarpThreads, actions.CTAThreads, actions.WarpThreads)
	}
	return int(warps), nil
}

func (p Pattern) fits(a actions.Action) bool {
	is := func(want int, has uint8) bool { return want == anything || want == int(has) }
	return is(p.path, uint8(a.Path)) && is(p.algorithm, uint8(a.Algorithm)) && is(p.protocol, uint8(a.Protocol)) &&
		is(p.kernel, uint8(a.Kernel)) && is(p.symmetric, uint8(a.Symmetric)) && is(p.backend, uint8(a.Backend)) && is(p.number, a.Channels) &&
		is(p.contexts, a.Contexts) && is(p.warps, a.Warps) && (p.flat == anything || a.Flat == (p.flat == 1))
}

// counted says that an algorithm is measured with channels of its own. A learner leaves PAT's number to NCCL, but recorded
// tables have it: what the number is worth is known only where it is measured.
func counted(a actions.Algorithm) bool {
	return a == actions.Ring || a == actions.Tree || a == actions.PAT
}

// counts are the numbers of channels that learners try.
func counts(maxChannels int) (all []uint8) {
	ring := tuner.MarkOf(actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple})
	for _, a := range tuner.ActionSet(state.Bucket{}, ring, maxChannels)[1:] {
		all = append(all, a.Channels)
	}
	return all
}

// named says that a pattern names this algorithm's LL and not LL or the algorithm alone.
func (p Pattern) named(a actions.Action) bool {
	return p.algorithm == int(a.Algorithm) && p.protocol == int(a.Protocol)
}

// choices gives what to force in a bucket: what NCCL's marks allow on all ranks, with the channels that learners try or
// those that were asked for, and our kernels that all ranks can run with the CTAs that learners try, as far as a pattern
// fits. Where all choices of LL are one device kernel it is there once, and others of LL only where a pattern names them: a
// tree's by tree/ll, channels by their number.
//
// Of GIN's contexts and our kernels' threads it has what learners try, and numbers that a pattern names.
func choices(b state.Bucket, marks uint32, maxChannels int, shape state.Shape, patterns []Pattern, channels []uint8) []actions.Action {
	if len(channels) == 0 {
		channels = counts(maxChannels)
	}
	var all []actions.Action
	device := tuner.MarkSet(marks)&tuner.MarkDeviceLL != 0
	for _, a := range tuner.OnRails(sharing(tuner.ActionSet(b, tuner.MarkSet(marks)&^tuner.MarkDeviceLL, maxChannels)[1:], tuner.MarkSet(marks), patterns), b, shape) {
		numbers := []uint8{0} // NCCL's own
		once := device && a.Path == actions.PathCollective && a.Protocol == actions.LL
		switch {
		case once && a.Algorithm != actions.Ring && !slices.ContainsFunc(patterns, func(p Pattern) bool { return p.named(a) }):
			continue
		case b.Collective.Registered() && !a.Ours(): // a name has none
		case a.Ours():
			numbers = []uint8{a.Channels}
		case counted(a.Algorithm) && !once:
			numbers = channels
		}
		for _, p := range patterns { // a number that somebody names is meant
			a.Channels = uint8(max(p.number, 0))
			if p.number > 0 && p.fits(a) && a.Check() == nil && (a.Ours() || !b.Collective.Registered()) {
				numbers = append(slices.Clone(numbers), a.Channels)
			}
		}
		for _, n := range numbers {
			a.Channels = n
			if n < a.Contexts { // one for each is what it has without
				continue
			}
			if !slices.Contains(all, a) && (len(patterns) == 0 || slices.ContainsFunc(patterns, func(p Pattern) bool { return p.fits(a) })) {
				all = append(all, a)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y actions.Action) int {
		return cmp.Or(cmp.Compare(x.Path, y.Path), cmp.Compare(x.Algorithm, y.Algorithm), cmp.Compare(x.Protocol, y.Protocol),
			cmp.Compare(x.Kernel, y.Kernel), cmp.Compare(x.Symmetric, y.Symmetric), cmp.Compare(x.Backend, y.Backend), cmp.Compare(x.Channels, y.Channels),
			cmp.Compare(x.Contexts, y.Contexts), cmp.Compare(x.Word(), y.Word()))
	})
	return all
}

// sharing adds what patterns name: CTAs on GIN that share so many contexts, and CTAs of our kernels with so many threads.
func sharing(set []actions.Action, marks tuner.MarkSet, patterns []Pattern) []actions.Action {
	for _, a := range set {
		for _, p := range patterns {
			if a.Contexts = uint8(max(p.contexts, 0)); a.Path == actions.PathGIN && marks.Has(a) && !slices.Contains(set, a) {
				set = append(set, a)
			}
			if a.Path == actions.PathLSA && p.warps > 0 && (p.kernel == anything || p.kernel == int(a.Kernel)) {
				a.Contexts, a.Warps = 0, uint8(p.warps)
				if !slices.Contains(set, a) {
					set = append(set, a)
				}
			}
		}
	}
	return set
}

// order puts NCCL's default first, in the middle and last: drift shows, and its mean has less noise. A bucket in which
// nothing is forced has it once.
func order(forced []actions.Action) []actions.Action {
	if len(forced) == 0 {
		return []actions.Action{actions.Default}
	}
	half := len(forced) / 2
	if half == 0 {
		return []actions.Action{actions.Default, forced[0], actions.Default}
	}
	return slices.Concat([]actions.Action{actions.Default}, forced[:half], []actions.Action{actions.Default}, forced[half:],
		[]actions.Action{actions.Default})
}
