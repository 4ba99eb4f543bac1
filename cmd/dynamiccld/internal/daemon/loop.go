package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/sampled"
	"dynamiccl/nccltuner"
	"dynamiccl/state"
	"dynamiccl/tuner"
)

// How often what is done. Rings are read every tick while something is explored, for trials wait for their answers; more
// rarely otherwise, up to idleTicks ticks when no samples come.
const (
	scanEvery    = 100 * time.Millisecond
	sweepEvery   = time.Second
	recordEvery  = 50 * time.Millisecond // joined ranks, marks: what is new here is a new communicator or size
	beatEvery    = 25 * time.Millisecond // ranks stop sampling after 4096 epochs without (DYN_HEARTBEAT_EPOCHS)
	flushEvery   = time.Second
	freshFor     = 10 * time.Second // newcomers are looked at in every tick: their programs may capture graphs soon, and ask no more
	settledTicks = 3                // while samples come and nothing is explored
	idleTicks    = 4
	drainBatch   = 64                 // samples of one ring before the next ring's turn, so that ranks stay side by side
	drainRounds  = 512                // batches of all rings in one tick; the rest waits for the next
	wantedEvents = 1<<1 | 1<<3 | 1<<6 // ncclProfileColl, ProxyOp, KernelCh: times, whoever takes them (src/include/plugin/nccl_profiler.h)
)

// Run works until ctx ends, then drains what the ranks have told and writes down what was learned.
func (d *Daemon) Run(ctx context.Context) error {
	flushed := make(chan struct{})
	flushCtx, stopFlush := context.WithCancel(context.Background())
	go func() {
		defer close(flushed)
		d.flushLoop(flushCtx)
	}()
	defer func() {
		stopFlush()
		<-flushed
	}()
	alarm, err := newAlarm()
	if err != nil {
		return err
	}
	defer alarm.close()
	defer context.AfterFunc(ctx, alarm.ring)()
	stopWatching, err := arrivals(d.cfg.Dir, func() {
		d.came.Store(true)
		alarm.ring()
	})
	defer stopWatching()
	if d.watched = err == nil; !d.watched {
		d.log.Warn("new ranks are found ten times a second and not at once: their first graphs may be captured before", "err", err)
	}
	wait := d.cfg.Tick
	for ctx.Err() == nil {
		if d.came.Swap(false) {
			d.cameNs, d.scanned = d.now(), 0
		}
		n := d.turn()
		if d.lost != nil {
			d.farewell() // into the store; the shared files may be another daemon's by now
			return d.lost
		}
		if n > 0 && d.exploring() || d.fresh(d.now()) {
			wait = d.cfg.Tick
		} else if n > 0 {
			wait = settledTicks * d.cfg.Tick
		} else {
			wait = min(wait*2, idleTicks*d.cfg.Tick)
		}
		<-d.busy
		err := alarm.sleep(wait)
		d.busy <- struct{}{}
		if err != nil {
			return fmt.Errorf("sleeping: %w", err)
		}
	}
	d.drain()
	d.sampling(0)
	d.farewell()
	return nil
}

// turn does all that is due and says how many samples came in.
func (d *Daemon) turn() int {
	now := d.now()
	scanEvery, recordEvery := scanEvery, recordEvery
	if d.fresh(now) {
		recordEvery = 0
		if !d.watched || !d.scanner.Quiet() {
			scanEvery = 0
		}
	}
	if due(&d.scanned, now, scanEvery) {
		d.scan()
	}
	if due(&d.swept, now, sweepEvery) {
		d.wake()
		d.sweep()
	}
	n := d.drain()
	if due(&d.readRecords, now, recordEvery) {
		d.records()
	}
	d.step(tuner.Tick{})
	for _, id := range d.order {
		d.publish(d.comms[id])
	}
	if due(&d.beaten, now, beatEvery) {
		d.beat()
	}
	d.flushTrace()
	return n
}

// fresh reports whether a process or a communicator came a short while ago.
func (d *Daemon) fresh(now state.Ns) bool { return d.cameNs != 0 && now-d.cameNs < state.Ns(freshFor) }

// exploring reports whether trials are under way in any communicator.
func (d *Daemon) exploring() bool {
	for _, c := range d.comms {
		if c.exploring && c.active {
			return true
		}
	}
	return false
}

func due(last *state.Ns, now state.Ns, every time.Duration) bool {
	if *last != 0 && now-*last < state.Ns(every) {
		return false
	}
	*last = now
	return true
}

// drain reads the rings in small turns, so that the samples of one call come close together whatever ring they are in.
func (d *Daemon) drain() int {
	total := 0
	for range drainRounds {
		got, more := 0, false
		d.batchNow = d.now()
		for _, r := range d.rings {
			n, err := r.Drain(d.batch[:])
			for i := range d.batch[:n] {
				d.sample(&d.batch[i])
			}
			got += n
			more = more || n == len(d.batch)
			if err != nil {
				d.giveUpRing(r, err)
				more = true
				break // d.rings has changed
			}
		}
		total += got
		if !more {
			break
		}
	}
	return total
}

func (d *Daemon) sample(s *nccltuner.Sample) {
	d.sampleCount++
	if s.Captured {
		d.capture(s)
	}
	if (s.Captured || s.Replayed) && s.Action.Ours() {
		if c := d.comms[tuner.CommID(s.CommID)]; c != nil {
			c.inGraphs = true // a replay tells of what was captured before this daemon came
		}
	}
	switch {
	case d.tunedElsewhere(tuner.CommID(s.CommID)):
	case sampled.Trip(s, &d.trip):
		d.stepAt(d.batchNow, &d.trip)
	case sampled.Replay(s, &d.replay):
		d.stepAt(d.batchNow, &d.replay)
	case sampled.Event(s, &d.event):
		d.stepAt(d.batchNow, &d.event)
	}
}

// step feeds the core and does what it asks.
func (d *Daemon) step(e tuner.Event) { d.stepAt(d.now(), e) }

func (d *Daemon) stepAt(now state.Ns, e tuner.Event) {
	out := d.core.Step(now, e)
	for i := range out.Plans {
		if c := d.comms[out.Plans[i].Comm]; c != nil {
			c.pending = planSpec(&out.Plans[i])
			c.exploring = slices.ContainsFunc(out.Plans[i].Entries, func(e tuner.Entry) bool { return len(e.Trials) > 0 })
		}
	}
	for _, f := range out.Findings {
		d.note(f)
	}
	for _, a := range out.Alarms {
		d.alarms.add(a)
	}
	d.traceOut(&out)
	if len(out.Learned) > 0 {
		d.learn(out.Learned)
	}
}

func (d *Daemon) publish(c *comm) {
	if c.broken || c.pending != nil && d.lostLock() {
		return
	}
	sent, err := c.publish()
	if err != nil {
		d.giveUpComm(c, err)
	} else if sent {
		d.publications++
		d.step(tuner.Published{Comm: c.id(), Version: c.version})
	}
	if err := c.answer(); err != nil {
		d.giveUpComm(c, err)
	}
}

// scan takes in files that appeared or went.
func (d *Daemon) scan() {
	if err := d.scanner.Scan(&d.changes); err != nil {
		d.once("scan", err)
		return
	}
	d.take(&d.changes)
}

// lostLock reports whether there may be another daemon. A record has one publisher: two that write the same buffer could have ranks
// read different plans.
func (d *Daemon) lostLock() bool {
	if d.lost == nil {
		d.lost = d.dir.Serves()
	}
	return d.lost != nil
}

// sweep deletes what dead processes left.
func (d *Daemon) sweep() {
	if d.lostLock() {
		return
	}
	if err := d.scanner.Sweep(&d.changes); err != nil {
		d.once("sweep", err)
	}
	d.take(&d.changes)
}

func (d *Daemon) take(ch *nccltuner.Changes) {
	for _, err := range ch.Rejected {
		if other := new(nccltuner.VersionError); errors.As(err, &other) {
			d.onceWarn(fmt.Sprintf("files of shared-memory layout %d are left alone while they are in use, for this daemon speaks %d: it does not tune the programs that made them; "+
				"use plugin and daemon of one release", other.Found, nccltuner.ABIVersion))
			continue
		}
		if errors.Is(err, nccltuner.ErrElsewhere) {
			d.onceWarn("files of processes in another PID namespace, as of another container, are left alone while they are in use, for nobody here knows which of them live: " +
				"this daemon does not tune these programs; start them and the daemon with one PID namespace (--pid=host), or each with a DYNAMICCL_DIR of its own")
			continue
		}
		d.log.Warn("a file in the directory cannot be used and is left alone; remove it if it is nobody's", "dir", d.cfg.Dir, "err", err)
	}
	for _, r := range ch.GoneRings {
		d.dropRing(r)
	}
	for _, r := range ch.GoneRecords {
		d.dropRecord(r)
	}
	for _, name := range ch.Removed {
		d.log.Debug("removed a stale file", "file", name)
	}
	for _, r := range ch.Rings {
		d.rings = append(d.rings, r)
		d.log.Info("process found", "pid", r.Process().PID)
		d.report(r.SetWantMask(d.mask))
	}
	for _, r := range ch.Records {
		d.addRecord(r)
	}
	if len(ch.Rings)+len(ch.Records) > 0 {
		d.cameNs = d.now()
	}
	if len(ch.Records) > 0 {
		d.tellOutstanding() // before the new ones have a plan
	}
}

// beat tells the ranks that somebody reads.
func (d *Daemon) beat() {
	for _, r := range d.rings {
		d.report(r.Beat())
	}
	for _, id := range d.order {
		if c := d.comms[id]; !c.broken {
			d.report(c.record.Beat())
		}
	}
}

// sampling switches the profiler events of all processes.
func (d *Daemon) sampling(mask uint32) {
	d.mask = mask
	for _, r := range d.rings {
		d.report(r.SetWantMask(mask))
	}
}

func (d *Daemon) dropRing(r *nccltuner.Ring) {
	d.batchNow = d.now()
	for { // what a rank told before it left counts
		n, err := r.Drain(d.batch[:])
		for i := range d.batch[:n] {
			d.sample(&d.batch[i])
		}
		if n == 0 || err != nil {
			break
		}
	}
	d.leaveRing(r)
	d.report(r.Close())
}

func (d *Daemon) giveUpRing(r *nccltuner.Ring, err error) {
	d.log.Error("the samples of a process cannot be read any more; its choices stay until it is started again", "pid", r.Process().PID, "err", err)
	d.leaveRing(r)
}

// leaveRing keeps what a ring has counted, once: totals must not fall where one is given up, and its file goes later.
func (d *Daemon) leaveRing(r *nccltuner.Ring) {
	before := len(d.rings)
	if d.rings = slices.DeleteFunc(d.rings, func(x *nccltuner.Ring) bool { return x == r }); len(d.rings) == before {
		return
	}
	s, err := r.Stats()
	if err != nil {
		s = nccltuner.RingStats{} // nobody can read it any more
	}
	d.goneDropped += s.Dropped
	d.goneUnjoined += s.Unjoined
	d.goneUntold += s.Untold
	d.goneTraffic(r.Process(), s.Traffic)
}

// report logs trouble with shared memory, each text once.
func (d *Daemon) report(err error) {
	if err != nil && !errors.Is(err, nccltuner.ErrClosed) {
		d.once("shared memory", err)
	}
}
