package sweep

import (
	"slices"

	"dynamiccl/actions"
)

// unmatched says of --choices that nothing of what they name could be tried, and what that wants: a table of NCCL's default alone does not.
func (r *runner) unmatched() (said []string) {
	for _, p := range r.o.Choices {
		if p == onlyDefault || slices.ContainsFunc(r.journal.points, p.tried) {
			continue
		}
		text := "what some of --choices name NCCL allows for none of these collectives and sizes"
		switch p.path {
		case int(actions.PathLSA):
			text = "nothing of lsa in --choices could be tried: all ranks must have our kernels (`make kernels`; `dynamiccld doctor` says what is missing), on one node and over NVLink"
		case int(actions.PathGIN):
			text = "nothing of gin in --choices could be tried: all ranks must have our kernels over GIN (`make kernels`), NCCL 2.28.9 or 2.32.3 and a network that gives GIN (README, \"Kernels over GIN\")"
		case int(actions.PathSymmetric):
			text = "nothing of symmetric in --choices could be tried: it wants --buffers registered and NCCL 2.31 or newer"
		}
		if !slices.Contains(said, text) {
			said = append(said, text)
		}
	}
	return said
}

// tried says that a point is of a choice that the pattern names, whatever became of it.
func (p Pattern) tried(at Point) bool {
	a, err := actions.Parse(at.Action)
	return at.Outcome != outcomeDone && err == nil && a != actions.Default && p.fits(a)
}
