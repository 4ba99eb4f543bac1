package curves

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"dynamiccl/cmd/dynamiccld/internal/compare"
	"dynamiccl/cmd/internal/wholefile"
)

// Folder makes the folder of the plots where it is missing.
func Folder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the folder of the plots: %w; name another with --plot", err)
	}
	return nil
}

// Regret writes one PNG a scenario into dir: the regret of every learner over calls. It gives the files written.
func Regret(dir string, blocks []compare.Block) ([]string, error) {
	var files []string
	for _, b := range blocks {
		p, err := regret(b)
		if err != nil {
			return files, fmt.Errorf("plotting %s, %s: %w", b.Trace, b.Condition, err)
		}
		file := filepath.Join(dir, fileName(b.Trace+" "+b.Condition)+".png")
		if err := save(p, file); err != nil {
			return files, err
		}
		files = append(files, file)
	}
	return files, nil
}

func regret(b compare.Block) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = b.Trace + ", " + b.Condition
	p.X.Label.Text = "calls of a bucket"
	p.Y.Label.Text = "regret, in calls of the best action, mean over buckets"
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, l := range b.Lines {
		xys := make(plotter.XYs, 0, len(l.Curve)+1)
		xys = append(xys, plotter.XY{})
		for t, y := range l.Curve {
			xys = append(xys, plotter.XY{X: float64(t + 1), Y: y})
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = plotutil.Color(i), vg.Points(1.5)
		if l.Knows {
			line.Dashes = plotutil.Dashes(1)
		}
		p.Add(line)
		p.Legend.Add(l.Learner, line)
	}
	return p, nil
}

// save draws a plot into a file.
func save(p *plot.Plot, file string) error {
	w, err := p.WriterTo(20*vg.Centimeter, 13*vg.Centimeter, "png")
	if err != nil {
		return fmt.Errorf("drawing %s: %w", file, err)
	}
	var picture bytes.Buffer
	if _, err := w.WriteTo(&picture); err != nil {
		return fmt.Errorf("drawing %s: %w", file, err)
	}
	return wholefile.Write(file, picture.Bytes())
}

// fileName keeps letters, digits, dots and dashes of a name.
func fileName(name string) string {
	name = strings.ReplaceAll(name, "->", "-to-")
	return strings.TrimLeft(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		}
		return '_'
	}, name), ".")
}
