package daemon

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/config"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/state"
	"dynamiccl/tuner"
	"dynamiccl/tuner/store"
)

// openMemory opens what was learned before. It always gives a usable memory; trouble with the file is logged.
func openMemory(path string, wall func() time.Time, log *slog.Logger) *store.Resilient {
	if path == config.StoreNone {
		path = ""
	}
	return store.NewResilient(path, store.Options{Now: wall}, log)
}

// known is what the store has for a communicator of this shape and NCCL version. What was learned for other versions is
// not used: choices and their costs change with NCCL's code. beside: machine.Beside.
func (d *Daemon) known(machine, beside string, shape state.Shape, ncclVersion int) []tuner.Learned {
	if ncclVersion == 0 {
		return nil // ranks that do not know their version, or differ: whose choices would these be?
	}
	prior := d.stored(machine, beside, shape, ncclVersion)
	if len(prior) > 0 {
		d.memory.Seen(machine, d.cfg.GPUArch, ncclVersion, shape)
		if beside != "" {
			d.memory.Seen(beside, d.cfg.GPUArch, ncclVersion, shape)
		}
		now, ahead := d.now(), d.ahead()
		for i := range prior {
			p := &prior[i]
			p.SinceNs, p.DiagnosisNs = moved(p.SinceNs, -ahead, now), moved(p.DiagnosisNs, -ahead, now)
		}
		d.log.Info("starting from stored choices", "shape", shape.String(), "buckets", len(prior))
		return prior
	}
	if others := d.memory.Versions(machine, d.cfg.GPUArch, ncclVersion, shape); len(others) > 0 {
		var names []string
		for _, v := range others {
			names = append(names, control.FormatNCCLVersion(v))
		}
		d.log.Info("nothing is stored for this NCCL version: starting afresh", "nccl", control.FormatNCCLVersion(ncclVersion), "stored_for", strings.Join(names, ", "))
	}
	return prior
}

// stored is what the store has for the machine, and, of sizes of which it has nothing, what it has beside that without NCCL's LL.
func (d *Daemon) stored(machine, beside string, shape state.Shape, ncclVersion int) []tuner.Learned {
	own := d.memory.Load(machine, d.cfg.GPUArch, ncclVersion, shape)
	own = append(own, d.transportless(machine, shape, ncclVersion, own)...)
	if beside == "" {
		return own
	}
	for _, l := range d.stored(beside, "", shape, ncclVersion) {
		l = l.WithoutLL()
		l.Key.Machine = machine
		if i := slices.IndexFunc(own, func(o tuner.Learned) bool { return o.Key.Bucket == l.Key.Bucket }); i < 0 {
			own = append(own, l)
		} else {
			own[i] = own[i].Refusing(unmeasured(own[i], l.Refused)...)
		}
	}
	return own
}

// unmeasured are those of refused that have not been measured since where this was.
func unmeasured(l tuner.Learned, refused []actions.Action) []actions.Action {
	return slices.DeleteFunc(slices.Clone(refused), func(a actions.Action) bool { return l.Calls > 0 && l.Evidence[a].N > 0 })
}

// moved is an instant by another clock; 0, which is not known, where it would be after now: the host's clock was set back since
// it was written.
func moved(at, by, now state.Ns) state.Ns {
	if at += by; at == by || at < 0 || at > now {
		return 0
	}
	return at
}

// transportless is what is stored for the shape without its transport and for no bucket of known: rules that were imported into
// the store file, which name none, are starting points wherever they fit. What was measured is not: nobody knows over what.
//
// What is refused there is refused over every transport, of known ones, too, unless it has been measured since over this one.
func (d *Daemon) transportless(machine string, shape state.Shape, ncclVersion int, known []tuner.Learned) (imported []tuner.Learned) {
	if shape.Transport == "" {
		return nil
	}
	without, measured := shape, 0
	without.Transport = ""
	for _, l := range d.memory.Load(machine, d.cfg.GPUArch, ncclVersion, without) {
		if l.Calls > 0 {
			measured++
		}
		l.Key.Shape = shape
		i := slices.IndexFunc(known, func(k tuner.Learned) bool { return k.Key.Bucket == l.Key.Bucket })
		switch {
		case i >= 0:
			k := &known[i]
			*k = k.Refusing(unmeasured(*k, l.Refused)...)
		case l.Calls == 0:
			imported = append(imported, l)
		case len(l.Refused) > 0:
			imported = append(imported, tuner.Refusal(l.Key, l.Refused...))
		}
	}
	if len(imported) > 0 {
		d.memory.Seen(machine, d.cfg.GPUArch, ncclVersion, without)
	}
	if measured > 0 && len(known) == 0 {
		d.log.Info("choices are stored for this shape that were measured while its transport was not known: they are measured again", "shape", shape.String(), "choices", measured)
	}
	return imported
}

// refuse has the memory refuse what these do.
func (d *Daemon) refuse(all []tuner.Learned) {
	for _, never := range all {
		k := never.Key
		if k.NCCLVersion == 0 {
			continue
		}
		for _, l := range d.memory.Load(k.Machine, k.GPUArch, k.NCCLVersion, k.Shape) {
			if l.Key == k {
				never = l.Refusing(never.Refused...)
			}
		}
		if err := d.memory.Put([]tuner.Learned{never}); err != nil {
			d.once("a refusal was not kept", err)
		}
	}
}

// learn takes what the core gives out. It touches memory only; flushLoop writes.
func (d *Daemon) learn(all []tuner.Learned) {
	all = slices.DeleteFunc(all, func(l tuner.Learned) bool { return l.Key.NCCLVersion == 0 })
	ahead := d.ahead()
	for i := range all {
		l := &all[i]
		l.SinceNs, l.DiagnosisNs = moved(l.SinceNs, ahead, math.MaxInt64), moved(l.DiagnosisNs, ahead, math.MaxInt64)
	}
	if err := d.memory.Put(all); err != nil {
		d.once("a learned choice was refused", err)
	}
}

// flushLoop writes behind, so that a slow disk never holds up the loop.
func (d *Daemon) flushLoop(ctx context.Context) {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = d.memory.Flush() // it logs what is wrong, once
		case <-ctx.Done():
			return // Close writes the rest
		}
	}
}

// storeState says in words how the store does.
func (d *Daemon) storeState() string {
	s := d.memory.Stats()
	switch {
	case s.Failing != nil:
		return "choices are kept in memory only: " + s.Failing.Error()
	case d.cfg.Store == config.StoreNone:
		return "none: choices are kept in memory only"
	}
	return "ok"
}
