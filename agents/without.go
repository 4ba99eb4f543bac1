package agents

// Without takes inputs away from the policy, to find out what they are worth.
type Without struct {
	Memory  bool // the LSTM's state stays zero
	Counter bool // local completion is not seen
	Signal  bool // remote visibility is not seen: local completion stands for it
	CUSUM   bool // the charts are not seen
	Peers   bool // nor what other buckets of the communicator measured
}

var inputs = []struct {
	name string
	of   func(*Without) *bool
}{
	{"memory", func(w *Without) *bool { return &w.Memory }},
	{"counter", func(w *Without) *bool { return &w.Counter }},
	{"signal", func(w *Without) *bool { return &w.Signal }},
	{"cusum", func(w *Without) *bool { return &w.CUSUM }},
	{"peers", func(w *Without) *bool { return &w.Peers }},
}

// InputNames are what can be left out, as cards of policies and `train --without` have it.
func InputNames() []string {
	var names []string
	for _, in := range inputs {
		names = append(names, in.name)
	}
	return names
}

// LeaveOut leaves out the input of that name; false: there is none.
func (w *Without) LeaveOut(name string) bool {
	for _, in := range inputs {
		if in.name == name {
			*in.of(w) = true
			return true
		}
	}
	return false
}

// Names are the inputs that are left out.
func (w Without) Names() []string {
	var names []string
	for _, in := range inputs {
		if *in.of(&w) {
			names = append(names, in.name)
		}
	}
	return names
}
