package render

import (
	"strings"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/tuner"
)

// What bounds the CTAs of our kernels is said in one line, and nothing where nothing does.
func TestWhySaysPlaces(t *testing.T) {
	for _, c := range []struct {
		view tuner.BucketView
		want bool
	}{{tuner.BucketView{MostCTAs: 32, Beside: 3}, true}, {tuner.BucketView{}, false}} {
		var said strings.Builder
		if err := Why(&said, control.FromView(c.view, 0, time.Time{}), nil, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(said.String(), "at most 32 CTAs: 3 kernels may wait beside it\n") != c.want || strings.Contains(said.String(), "places") != c.want {
			t.Errorf("%+v:\n%s", c.view, &said)
		}
	}
}
