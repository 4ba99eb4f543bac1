package tuner

import (
	"fmt"

	"dynamiccl/actions"
)

// AuditView is what the latest audit of a communicator's steps has come to.
type AuditView struct {
	Pairs     int     // of blocks, one under what was chosen and one under NCCL's default
	LongerBy  float64 // so much longer were steps with what was chosen; negative: shorter
	Low, High float64 // 95%
	Vetoed    bool    // NCCL's default is in force for it
}

func (v *AuditView) String() string {
	by := func(x float64) string { return fmt.Sprintf("%.1f", 100*x) }
	if v.Vetoed {
		return fmt.Sprintf("its steps are %s%% longer with what was chosen (%s to %s): NCCL's default is in force", by(v.LongerBy), by(v.Low), by(v.High))
	}
	if v.LongerBy > 0 {
		return fmt.Sprintf("%s%% longer with what was chosen than with NCCL's default (%s to %s): not beyond doubt", by(v.LongerBy), by(v.Low), by(v.High))
	}
	return fmt.Sprintf("%s%% shorter with what was chosen than with NCCL's default (%s to %s)", by(-v.LongerBy), by(-v.High), by(-v.Low))
}

// finding is what people are told when NCCL's default comes into force, or goes.
func (v *AuditView) finding() string {
	if v.Vetoed {
		return "step guard: " + v.String()
	}
	return "step guard: its steps are " + v.String() + ": that is in force again"
}

// shows puts what the audits of a bucket's communicator have come to into what people see of it.
func (a *audit) shows(v *BucketView) {
	if a == nil {
		return
	}
	if v.Audit = a.told; a.vetoed && v.Choice != actions.Default {
		v.Choice, v.SinceNs, v.Stored, v.Expected, v.ExpectedSD = actions.Default, a.vetoedNs, 0, 0, 0
		v.SpeedUp, v.SpeedUpLow, v.SpeedUpHigh = 1, 1, 1
	}
}
