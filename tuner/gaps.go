package tuner

// interval is when a call ran on all ranks, host's clock. startNs 0: nobody knows.
type interval struct {
	seq            uint64
	startNs, endNs int64
}

// next has s be the latest one, and says whether it comes right behind the one before, and began later.
func (l *interval) next(s interval) (before interval, follows bool) {
	before, *l = *l, s
	return before, before.startNs != 0 && s.startNs > before.startNs && s.seq == before.seq+1
}

// waited is for how long its stream waited for more than the call before; 0 where that is next to nothing.
func (l interval) waited(before interval) int64 {
	if ns := l.startNs - before.endNs; ns >= idleNs {
		return ns
	}
	return 0
}

// gaps are times in which a stream waits for more than the call before.
type gaps struct {
	latest    interval
	trial     bool
	idle, all float64
}

// hear takes in a call, and gives what lies between the start of the one before and its own. 0: nobody knows, or that one was a trial.
func (g *gaps) hear(s interval, trial bool) (stepNs float64) {
	before, follows := g.latest.next(s)
	behindTrial := g.trial
	g.trial = trial
	if !follows {
		return 0
	}
	ns := float64(s.startNs - before.startNs)
	g.all += ns
	g.idle += float64(s.waited(before))
	if behindTrial {
		return 0
	}
	return ns
}
