package metrics

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// unitOf a family is in its name: what ends in neither of these is a number of things.
func unitOf(name string) string {
	switch {
	case strings.Contains(name, "_seconds"):
		return "seconds"
	case strings.HasSuffix(name, "_ratio"):
		return "ratio"
	}
	return "number"
}

// The docs have every family that is exported, with its labels, its unit and its help, every label, and every value of a closed set.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectorOf(sampleBackend()))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var has []string
	labels := map[string]string{}
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "| `dynamiccl_") {
			has = append(has, line)
		} else if name, rest, ok := strings.Cut(strings.TrimPrefix(line, "| `"), "` | "); ok {
			labels[name] = rest
		}
	}
	for _, f := range families {
		var with []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			with = append(with, "`"+l.GetName()+"`")
		}
		if len(with) > 0 {
			with[len(with)-1] += " "
		}
		row := fmt.Sprintf("| `%s` | %s| %s, %s | %s |", f.GetName(), strings.Join(with, ", "), strings.ToLower(f.GetType().String()), unitOf(f.GetName()), f.GetHelp())
		i := slices.Index(has, row)
		if i < 0 {
			t.Errorf("docs/metrics.md wants this row:\n%s", row)
			continue
		}
		has = slices.Delete(has, i, i+1)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				values, ok := labels[l.GetName()]
				if !ok {
					t.Errorf("docs/metrics.md does not say what the label %s is", l.GetName())
				} else if strings.HasPrefix(values, "`") && !strings.Contains(values, "`"+l.GetValue()+"`") {
					t.Errorf("docs/metrics.md does not have the value %s of %s", l.GetValue(), l.GetName())
				}
			}
		}
	}
	for _, row := range has {
		t.Errorf("docs/metrics.md has what is not exported:\n%s", row)
	}
}
