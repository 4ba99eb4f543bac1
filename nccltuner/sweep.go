package nccltuner

import (
	"errors"
	"fmt"
	"slices"
)

// Sweep looks which processes have ended, marks their rings so that Drain comes to an end, and deletes what nobody needs
// any more. It reads /proc once a process, so it belongs to a slower clock than Scan.
func (s *Scanner) Sweep(c *Changes) error {
	c.reset()
	s.quiet = false // should a stamp ever not tell of a file, it is found a second later
	known := map[Process]bool{}
	alive := func(p Process) (bool, error) {
		if living, ok := known[p]; ok {
			return living, nil
		}
		living, err := s.alive(p)
		if err == nil {
			known[p] = living
		}
		return living, err
	}
	names := make([]string, 0, len(s.files))
	for name := range s.files {
		names = append(names, name)
	}
	slices.Sort(names)
	var all []error
	for _, name := range names {
		f := s.files[name]
		var removed bool
		var err error
		switch {
		case f.ring != nil:
			removed, err = s.sweepRing(f.ring, alive)
		case f.record != nil:
			removed, err = s.sweepRecord(f.record, alive)
		case errors.Is(f.verdict, ErrNotReady):
			removed, err = s.sweepUnfinished(name, f, alive)
		case errors.Is(f.verdict, ErrVersion):
			removed, err = s.sweepOther(name, f, alive)
		case errors.Is(f.verdict, ErrElsewhere):
			removed, err = s.sweepOther(name, f, func(Process) (bool, error) { return false, nil }) // its pid is another process's here
		}
		if err != nil && !errors.Is(err, ErrBusy) {
			all = append(all, fmt.Errorf("sweeping: %w", err))
		}
		if removed {
			c.Removed = append(c.Removed, name)
			f.drop(c)
			delete(s.files, name)
		}
	}
	return errors.Join(all...)
}

func (s *Scanner) sweepRing(r *Ring, alive func(Process) (bool, error)) (removed bool, err error) {
	if !r.dead {
		living, err := alive(r.process)
		if living || err != nil {
			return false, err
		}
		r.MarkDead()
	}
	err = s.dir.RemoveRing(r)
	return err == nil, err
}

func (s *Scanner) sweepRecord(r *Record, alive func(Process) (bool, error)) (removed bool, err error) {
	// Most records are in use: look before taking the lock that ranks need.
	if gone, err := s.allGone(r, alive); !gone || err != nil {
		return false, err
	}
	unlock, ok, err := s.dir.tryJoinLock()
	if !ok || err != nil {
		return false, err
	}
	defer unlock()
	// Under the lock nobody is in the middle of joining, so this answer stays true until the file is gone.
	if gone, err := s.allGone(r, alive); !gone || err != nil {
		return false, err
	}
	err = s.dir.remove(r.memory.name, r.memory.id)
	return err == nil, err
}

// allGone is also true of a record in which nobody has registered; under the lock its creator must have died.
func (s *Scanner) allGone(r *Record, alive func(Process) (bool, error)) (bool, error) {
	if err := r.View(&s.view); err != nil {
		return false, nil // a broken record is left alone; its user meets the same error
	}
	left, dead, err := s.view.Gone(alive)
	return left+dead == s.view.Joined, err
}

// sweepUnfinished deletes a file whose creator died before it was ready. Where that is only not known here, as of one in another PID
// namespace, it has the file open.
func (s *Scanner) sweepUnfinished(name string, f *file, alive func(Process) (bool, error)) (removed bool, err error) {
	return s.sweepFile(name, f, alive, func() bool { return s.stillUnfinished(name) && unused(s.dir.fd, name) })
}

// sweepOther deletes what processes of another layout, or in another PID namespace, left, which no daemon of ours would ever free. Who
// uses such a file the kernel knows: a process has its ring mapped for as long as it lives, and a rank a record from when it joins,
// under the lock that is held here, for as long as it has anything to do with it.
func (s *Scanner) sweepOther(name string, f *file, alive func(Process) (bool, error)) (removed bool, err error) {
	return s.sweepFile(name, f, alive, func() bool { return unused(s.dir.fd, name) })
}

// sweepFile deletes a file that nobody here can serve, if it may go: asked where the process of a ring has ended, and of all
// else under the lock. Ranks create records and join them under it: who holds it knows that nobody is at work.
func (s *Scanner) sweepFile(name string, f *file, alive func(Process) (bool, error), mayGo func() bool) (removed bool, err error) {
	process, ring := parseRingName(name)
	if ring {
		if living, err := alive(process); living || err != nil {
			return false, err
		}
	} else {
		unlock, ok, err := s.dir.tryJoinLock()
		if !ok || err != nil {
			return false, err
		}
		defer unlock()
	}
	if !mayGo() {
		return false, nil
	}
	err = s.dir.remove(name, f.stamp.id)
	return err == nil, err
}

func (s *Scanner) stillUnfinished(name string) bool {
	var err error
	if commID, ok := parseRecordName(name); ok {
		var r *Record
		if r, err = s.dir.OpenRecord(commID); err == nil {
			_ = r.Close() // only opened to look; the next scan takes it
		}
	} else if process, ok := parseRingName(name); ok {
		var r *Ring
		if r, err = s.dir.OpenRing(process); err == nil {
			_ = r.Close()
		}
	}
	return errors.Is(err, ErrNotReady)
}

// RemoveRing deletes the file of a ring whose process has ended and that is drained; else ErrBusy.
func (d *Dir) RemoveRing(r *Ring) error {
	if !r.Drained() {
		return fmt.Errorf("removing %s: %w", r.memory.name, ErrBusy)
	}
	return d.remove(r.memory.name, r.memory.id)
}
