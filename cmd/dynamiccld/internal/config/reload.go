package config

// Change is one setting that a reload would change.
type Change struct {
	Key, Old, New string
}

// Reload says what differs between the configuration in force and a newly read one: what may change in a running daemon
// and what needs a restart. The configuration to go on with is next with the settings of restart as they were.
func Reload(old, next Config) (merged Config, live, restart []Change) {
	merged = next
	for _, f := range fields {
		was, is := f.get(old), f.get(next)
		switch {
		case was == is:
		case f.live:
			live = append(live, Change{f.key, was, is})
		default:
			restart = append(restart, Change{f.key, was, is})
			// What validated once validates again, so the error is always nil.
			_ = f.set(&merged, was)
		}
	}
	return merged, live, restart
}
