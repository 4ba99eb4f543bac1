package render

import (
	"strings"
	"testing"
	"time"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/tuner"
)

// What bounds the CTAs of our kernels, and what is hardly tried, are said in a line each, and nothing where nothing is.
func TestWhySaysWhatIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		view tuner.BucketView
		want string
	}{
		{tuner.BucketView{MostCTAs: 32, Beside: 3}, "places at most 32 CTAs: 3 kernels may wait beside it"},
		{tuner.BucketView{MostCTAs: 32, Beside: 1}, "places at most 32 CTAs: 1 kernel may wait beside it"},
		{tuner.BucketView{Silent: []actions.Action{{Path: actions.PathLSA, Kernel: actions.Bulk, Channels: 64}, {Path: actions.PathLSA, Channels: 4}}},
			"hardly tried lsa/bulk/64, lsa/oneshot/4: no times came of their trials, or of too few calls"},
		{tuner.BucketView{}, ""},
	} {
		var said strings.Builder
		if err := Why(&said, control.FromView(c.view, 0, time.Time{}), nil, time.Time{}); err != nil {
			t.Fatal(err)
		}
		left := ""
		for line := range strings.Lines(said.String()) {
			if line = strings.Join(strings.Fields(line), " "); strings.HasPrefix(line, "places ") || strings.HasPrefix(line, "hardly tried ") {
				left += line
			}
		}
		if left != c.want {
			t.Errorf("%q, want %q", left, c.want)
		}
	}
}
