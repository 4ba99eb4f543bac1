package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"dynamiccl/agents"
	"dynamiccl/cmd/internal/wholefile"
)

// run is one training.
type run struct {
	options
	trainer  trainer
	card     agents.PolicyCard
	progress *progress
	say      func(format string, args ...any) // to people, above the progress

	since     sums // since the last point of the curve
	validated int  // update after which validation last ran; -1: none in this process
}

// sums are what a point of the curve is the mean of.
type sums struct {
	Loss, Norm float64
	Updates    int
}

func (s sums) means() (loss, norm float64) {
	if s.Updates == 0 {
		return math.NaN(), math.NaN()
	}
	return s.Loss / float64(s.Updates), s.Norm / float64(s.Updates)
}

// errNotFinite ends a run whose weights are about to become worthless.
var errNotFinite = errors.New("training diverged")

func (p *program) train(ctx context.Context, o options) (err error) {
	date, err := p.date()
	if err != nil {
		return err
	}
	if o.curve != "" {
		if err := os.MkdirAll(o.curve, 0o755); err != nil {
			return fmt.Errorf("making the folder of the curve: %w; name another with --curve", err)
		}
	}
	if err := o.distinct(); err != nil {
		return err
	}
	for _, file := range o.written() {
		if err := writable(file.path, room); err != nil {
			return err
		}
	}
	if err := replaceable(o.out); err != nil {
		return err
	}
	unlock, err := o.lockAll(func(err error) {
		fmt.Fprintf(p.stderr, "dynamiccld train: %v: take care that no other run writes it\n", err)
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	old, err := o.previous()
	if err != nil {
		return err
	}
	all, err := p.sources(o)
	if err != nil {
		return err
	}
	kept, held, err := split(all, o.holdOut)
	if err != nil {
		return err
	}
	if len(kept) == 0 && !o.synthetic() {
		return usage{fmt.Errorf("--hold-out leaves no table to learn from; give --synthetic 1 for synthetic fabrics alone")}
	}
	if ctx.Err() != nil {
		return errInterrupted // nothing is begun, nothing to keep
	}
	t, err := p.start(o.recipe, tables(kept), o.threads)
	if err != nil {
		return err
	}
	r := &run{options: o, trainer: t, card: o.card(date, p.commit, kept, held), validated: -1}
	if old != nil {
		if err := t.Resume(old.Trainer); err != nil {
			return fmt.Errorf("%s: %w", o.checkpoint, err)
		}
		r.since = old.Since
		r.card.Recipe = origin(r.card.Recipe, o.recipe.Objective, t.Origin())
	}
	r.progress = newProgress(p, o, t.Update())
	r.say = func(format string, args ...any) {
		r.progress.clear()
		fmt.Fprintf(p.stderr, "dynamiccld train: "+format+"\n", args...)
	}
	if !o.quiet {
		r.say("%d tables, %d held out, %d updates", len(kept), len(held), o.recipe.Updates)
	}
	err = r.train(ctx)
	r.progress.end()
	if err == nil || errors.Is(err, errInterrupted) {
		_, regret := t.Best()
		fmt.Fprintf(p.stdout, "%s written: %d of %d updates, validation regret %.3f\n", o.out, t.Update(), o.recipe.Updates, regret)
	}
	return err
}

// train makes the updates that are left.
func (r *run) train(ctx context.Context) error {
	for !r.trainer.Done() {
		loss, norm, err := r.trainer.Step()
		update := r.trainer.Update()
		if err == nil && !(isFinite(loss) && isFinite(norm)) {
			err = fmt.Errorf("update %d: loss %g, gradient norm %g: %w: try a lower --rate or another --seed", update, loss, norm, errNotFinite)
		}
		if err != nil {
			return r.failed(err)
		}
		r.since.Loss += loss
		r.since.Norm += norm
		r.since.Updates++
		if update%r.every == 0 || r.trainer.Done() {
			r.validate()
			if err := r.save(); err != nil {
				r.say("%v; training goes on without", err) // free space may be back at the end
			}
			if err := r.draw(); err != nil {
				r.say("%v; training goes on without", err)
			}
		}
		r.progress.show(update, loss, r.trainer)
		if ctx.Err() != nil && !r.trainer.Done() {
			return r.interrupted()
		}
	}
	if r.validated != r.trainer.Update() { // the checkpoint was of a run that is done
		if err := r.draw(); err != nil {
			r.say("%v", err)
		}
	}
	if err := r.write(); err != nil {
		return err // the checkpoint stays: with --resume only this is done again
	}
	if err := os.Remove(r.checkpoint); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the checkpoint of the finished run: %w", err)
	}
	return nil
}

func isFinite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func (r *run) validate() {
	r.trainer.Validate(r.since.means())
	r.since, r.validated = sums{}, r.trainer.Update()
}

// write writes the policy of the best validation.
func (r *run) write() error {
	weights, regret := r.trainer.Best()
	card := r.card
	card.Updates = r.trainer.Update()
	results(&card, regret)
	file, err := agents.EncodePolicy(weights, card)
	if err != nil {
		return fmt.Errorf("encoding the policy: %w", err)
	}
	return wholefile.Write(r.out, file)
}

// interrupted keeps all. The checkpoint comes first: it must not know of a validation that an unbroken run would not
// have made, or the two would keep different weights.
func (r *run) interrupted() error {
	if r.validated != r.trainer.Update() {
		if err := r.save(); err != nil {
			r.say("%v", err)
		}
		if !r.quiet {
			r.say("stopping after update %d: validating; a second signal stops at once", r.trainer.Update())
		}
		r.validate()
	}
	err := errors.Join(r.draw(), r.write())
	if err != nil {
		return err
	}
	r.say("stopped after update %d of %d; to go on:\n  %s", r.trainer.Update(), r.recipe.Updates, r.again())
	return errInterrupted
}

// failed keeps the best weights of a run that cannot go on.
func (r *run) failed(err error) error {
	if _, regret := r.trainer.Best(); !isFinite(regret) {
		return fmt.Errorf("%w; nothing was validated yet, so no policy is written", err)
	}
	if e := r.write(); e != nil {
		return errors.Join(err, e)
	}
	return fmt.Errorf("%w; the best weights so far are in %s", err, r.out)
}
