package agents

// Tape is what training needs of a policy's run on one bucket: the tokens in order, and decisions between them. The zero
// value records nothing but the tokens.
type Tape struct {
	Tokens    []float64             // [T, TokenWidth]
	Wanted    func(tokens int) bool // whether to keep the decision after so many tokens; nil: none
	Decisions []Decision
	Costs     []float64 // of every call: observed log cost over the default's
	Phase     int       // written into decisions; the driver's
}

// Decision is the policy's input at one moment, and what its network made of that.
type Decision struct {
	After     int // tokens read before it
	Phase     int
	Context   []float64 // [ContextWidth]
	Features  []float64 // [A, ActionWidth]
	Relative  []float64 // [A]: own measurements
	Precision []float64 // [A]
	Taken     int       // action of the next call; -1: none came
	Paid      float64   // its observed log cost over the default's
	Call      int       // the index of that in the tape's Costs
	Drawn     bool      // the action was drawn from all, by what each is worth

	// What the network said; training compares its own forward pass with it.
	Mean   []float64 // [A]: expected log cost over the default's
	LogVar []float64 // [A]
	Trust  []float64 // [A]: how much own measurements still say, 0 to 1
}

func (t *Tape) token(x []float64) { t.Tokens = append(t.Tokens, x...) }

func (t *Tape) paid(action int, relative float64) {
	t.Costs = append(t.Costs, relative)
	if n := len(t.Decisions); n > 0 && t.Decisions[n-1].Taken < 0 {
		t.Decisions[n-1].Taken, t.Decisions[n-1].Paid = action, relative
	}
}

// drawn says that the action of the next call is drawn by chance.
func (t *Tape) drawn() {
	if n := len(t.Decisions); n > 0 && t.Decisions[n-1].Taken < 0 {
		t.Decisions[n-1].Drawn = true
	}
}

func (t *Tape) decision(l *lstm) {
	after := len(t.Tokens) / TokenWidth
	if t.Wanted == nil || !t.Wanted(after) {
		return
	}
	if n := len(t.Decisions); n > 0 && t.Decisions[n-1].After == after {
		return
	}
	if l.opt.Without.Memory {
		clear(t.Tokens) // the LSTM read none of them, and zeros leave its state zero
	}
	d := Decision{After: after, Taken: -1, Call: len(t.Costs), Phase: t.Phase, Context: append([]float64(nil), l.context[:]...),
		Features: append([]float64(nil), l.features...), Relative: make([]float64, len(l.set)), Precision: make([]float64, len(l.set)),
		Mean: append([]float64(nil), l.net.mean...), LogVar: append([]float64(nil), l.net.logv...), Trust: append([]float64(nil), l.net.trust...)}
	sigma := l.sigma()
	for i := 1; i < len(l.set); i++ {
		d.Relative[i], d.Precision[i] = l.measured(i, sigma)
	}
	t.Decisions = append(t.Decisions, d)
}
