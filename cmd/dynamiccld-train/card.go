package main

import (
	"fmt"
	"math"
	"runtime/debug"
	"strconv"
	"time"

	"dynamiccl/agents"
	"dynamiccl/models/train"
)

// commit is the code that trains: the revision, else what the linker was told.
func commit() string {
	revision, changed := "", ""
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changed = " with local changes"
			}
		}
	}
	switch {
	case revision != "":
		return revision + changed
	case version != "":
		return version
	}
	return "unknown"
}

// date is the day of training; SOURCE_DATE_EPOCH (reproducible-builds.org) sets it, so that bytes can be compared.
func (p *program) date() (string, error) {
	now := p.now()
	if text := p.getenv("SOURCE_DATE_EPOCH"); text != "" {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || seconds < 0 {
			return "", usage{fmt.Errorf("SOURCE_DATE_EPOCH %q is not a number of seconds since 1970; unset it or correct it", text)}
		}
		now = time.Unix(seconds, 0)
	}
	return now.UTC().Format(time.DateOnly), nil
}

// card says what the policy was made of.
func (o *options) card(date, commit string, kept, held []source) agents.PolicyCard {
	r := o.recipe
	data := names(kept)
	if r.Pretrain > 0 || r.Synthetic > 0 || len(kept) == 0 {
		data = append(data, "synthetic fabrics of tunersim.RandomMachine")
	}
	return agents.PolicyCard{
		Name: agents.NameLSTM, Date: date, Commit: commit, Seed: r.Seed, Updates: r.Updates, Data: data,
		Recipe: map[string]any{"objective": string(r.Objective), "pretrain": r.Pretrain, "synthetic": r.Synthetic, "rate": r.Rate,
			"validate_every": o.every, "without": r.Without.Names(), "held_out": names(held)},
		Horizon: agents.DefaultPolicyOptions().Horizon, Without: r.Without, Optimism: r.Objective.Actor().Optimism,
	}
}

// origin adds to a card's recipe what pre-training had that the run does not.
func origin(recipe map[string]any, objective train.Objective, from train.Origin) map[string]any {
	if from.Objective != "" && from.Objective != objective {
		recipe["pretrained_by"] = string(from.Objective)
	}
	if from.OtherTables {
		recipe["begun_with_other_tables"] = true
	}
	return recipe
}

// results writes the best validation into the card.
func results(card *agents.PolicyCard, regret float64) {
	if !math.IsInf(regret, 0) && !math.IsNaN(regret) {
		card.Results = map[string]float64{"validation_regret": regret}
	}
}
