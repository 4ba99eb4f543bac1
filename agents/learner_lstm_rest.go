package agents

import "math/bits"

// Among actions that cost the same within the noise, knowing more is always worth a little, and a policy would look for
// ever; in a daemon that keeps every call sampled. So it searches for settleCalls calls of a condition and then rests,
// but for a look of lookCalls calls whenever the condition has lasted twice as long as at the look before.
const (
	settleCalls = 256
	lookCalls   = 32
)

// rests reports that nothing is tried now. What is measured still moves the base, without the network, and the guard
// still rechecks.
func (l *lstm) rests() bool {
	n := l.sinceShift
	return n >= settleCalls && n-1<<(bits.Len(uint(n))-1) >= lookCalls
}
