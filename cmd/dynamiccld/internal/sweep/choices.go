package sweep

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"dynamiccl/actions"
	"dynamiccl/tuner"
)

// anything is a part of a pattern that every choice fits.
const anything = -1

// Pattern picks choices: ALGORITHM/PROTOCOL/CHANNELS, where * or a part that is missing at the end fits everything, and
// "default", which is measured always, nothing.
type Pattern struct{ algorithm, protocol, channels int }

var onlyDefault = Pattern{-2, -2, -2}

// ParsePattern reads "ring/ll128/*", "tree/*/8", "ring".
func ParsePattern(s string) (Pattern, error) {
	p := Pattern{anything, anything, anything}
	if strings.EqualFold(s, "default") {
		return onlyDefault, nil
	}
	parts := strings.Split(s, "/")
	if len(parts) > 3 {
		return p, fmt.Errorf("choice %q: want ALGORITHM/PROTOCOL/CHANNELS with * for any, like ring/ll128/* or tree/*/8", s)
	}
	for i, part := range parts {
		if part == "*" {
			continue
		}
		switch i {
		case 0:
			a, err := actions.ParseAlgorithm(part)
			if err != nil {
				return p, fmt.Errorf("choice %q: %w", s, err)
			}
			p.algorithm = int(a)
		case 1:
			proto, err := actions.ParseProtocol(part)
			if err != nil {
				return p, fmt.Errorf("choice %q: %w", s, err)
			}
			p.protocol = int(proto)
		case 2:
			n, err := strconv.ParseUint(part, 10, 8)
			if err != nil || n == 0 {
				return p, fmt.Errorf("choice %q: channels must be 1 to 255 or *", s)
			}
			p.channels = int(n)
		}
	}
	return p, nil
}

func (p Pattern) fits(a actions.Action) bool {
	return (p.algorithm == anything || p.algorithm == int(a.Algorithm)) && (p.protocol == anything || p.protocol == int(a.Protocol)) &&
		(p.channels == anything || p.channels == int(a.Channels))
}

// counted says that an algorithm is measured with channels of its own. A learner leaves PAT's number to NCCL, but recorded
// tables have it: what the number is worth is known only where it is measured.
func counted(a actions.Algorithm) bool {
	return a == actions.Ring || a == actions.Tree || a == actions.PAT
}

// counts are the numbers of channels that learners try.
func counts(maxChannels int) (all []uint8) {
	ring := actions.Action{Path: actions.PathCollective, Algorithm: actions.Ring, Protocol: actions.Simple}
	for _, a := range tuner.ActionSet(tuner.MarkSet(1<<(uint(ring.Algorithm)*actions.NumProtocols+uint(ring.Protocol))), maxChannels)[1:] {
		all = append(all, a.Channels)
	}
	return all
}

// named says that a pattern names this algorithm's LL and not LL or the algorithm alone.
func (p Pattern) named(a actions.Action) bool {
	return p.algorithm == int(a.Algorithm) && p.protocol == int(a.Protocol)
}

// choices gives what to force in a bucket: what NCCL's marks allow on all ranks, with the channels that learners try or
// those that were asked for, as far as a pattern fits. Where all choices of LL are one device kernel it is there once, and
// others of LL only where a pattern names them: a tree's by tree/ll, channels by their number.
func choices(marks uint32, maxChannels int, patterns []Pattern, channels []uint8) []actions.Action {
	if len(channels) == 0 {
		channels = counts(maxChannels)
	}
	var all []actions.Action
	device := tuner.MarkSet(marks)&tuner.MarkDeviceLL != 0
	for _, a := range tuner.ActionSet(tuner.MarkSet(marks)&^tuner.MarkDeviceLL, maxChannels)[1:] {
		numbers := []uint8{0} // NCCL's own
		if once := device && a.Protocol == actions.LL; once && a.Algorithm != actions.Ring && !slices.ContainsFunc(patterns, func(p Pattern) bool { return p.named(a) }) {
			continue
		} else if counted(a.Algorithm) && !once {
			numbers = channels
		}
		for _, p := range patterns { // a number that somebody names is meant
			a.Channels = uint8(max(p.channels, 0))
			if p.channels > 0 && p.fits(a) {
				numbers = append(slices.Clone(numbers), a.Channels)
			}
		}
		for _, n := range numbers {
			a.Channels = n
			if !slices.Contains(all, a) && (len(patterns) == 0 || slices.ContainsFunc(patterns, func(p Pattern) bool { return p.fits(a) })) {
				all = append(all, a)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y actions.Action) int {
		if x.Algorithm != y.Algorithm {
			return int(x.Algorithm) - int(y.Algorithm)
		}
		if x.Protocol != y.Protocol {
			return int(x.Protocol) - int(y.Protocol)
		}
		return int(x.Channels) - int(y.Channels)
	})
	return all
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
