package agents

// Among actions that cost the same within the noise, knowing more is always worth a little, and a policy would look for
// ever; in a daemon that keeps every call sampled. So it searches for settleCalls calls of a condition and then rests,
// but for a look of lookCalls calls whenever the condition has lasted twice as long as when the search before ended.
const (
	settleCalls = 256
	lookCalls   = 32
)

// search is how much longer the policy searches. Not all calls count: a daemon may see hundreds of them between two plans,
// and a policy that was asked once would rest with nothing tried. So a proposal counts for no more calls than it could
// have had trials, and for none when the guard let none of its trials run. That it counts with fewer trials as well, and
// whatever calls are seen, makes a search end that finds little worth a trial, or whose samples are lost.
type search struct {
	left int // calls
	open int // coming calls that count: those of the latest proposal
	next int // calls of the condition at which a look begins
}

func newSearch() search { return search{left: settleCalls} }

// rests reports that nothing is tried now. What is measured still moves the base, without the network, and the guard
// still rechecks.
func (s *search) rests() bool { return s.left <= 0 }

// proposed notes a proposal that had room for so many trials.
func (s *search) proposed(room int) { s.open = room }

// observe counts a call; calls are those of the condition.
func (s *search) observe(calls int) {
	switch {
	case s.rests() && calls >= s.next:
		s.left, s.open = lookCalls, 0
	case s.rests() || s.open <= 0:
	default:
		s.open--
		if s.left--; s.rests() {
			s.next = 2 * calls
		}
	}
}

// Granted is a learner that wants to know what became of its proposal.
type Granted interface {
	// Granted says how many of the trials of the latest Propose, which were not none, may run.
	Granted(trials int)
}

// Granted keeps a guard that has nothing left to lose from ending a search that it never let begin.
func (l *lstm) Granted(trials int) {
	if trials == 0 {
		l.search.open = 0
	}
}
