package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"image/color"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"dynamiccl/cmd/internal/wholefile"
	"dynamiccl/models/train"
)

func (o *options) curveFile(kind string) string { return filepath.Join(o.curve, "training."+kind) }

// draw writes the training curve, when it is wanted.
func (r *run) draw() error {
	if r.curve == "" {
		return nil
	}
	points := r.trainer.Curve()
	table, err := curveCSV(points)
	if err != nil {
		return err
	}
	if err := wholefile.Write(r.curveFile("csv"), table); err != nil {
		return err
	}
	picture, err := curvePNG(points)
	if err != nil {
		return err
	}
	return wholefile.Write(r.curveFile("png"), picture)
}

// quantities are the columns of the curve after the update.
var quantities = []struct {
	column, label string
	of            func(train.Point) float64
}{
	{"loss", "loss", func(p train.Point) float64 { return p.Loss }},
	{"gradient_norm", "gradient norm", func(p train.Point) float64 { return p.Norm }},
	{"validation_regret", "validation regret", func(p train.Point) float64 { return p.Regret }},
}

func curveCSV(points []train.Point) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	rows := [][]string{{"update"}}
	for _, q := range quantities {
		rows[0] = append(rows[0], q.column)
	}
	for _, p := range points {
		row := []string{strconv.Itoa(p.Update)}
		for _, q := range quantities {
			row = append(row, strconv.FormatFloat(q.of(p), 'g', -1, 64))
		}
		rows = append(rows, row)
	}
	if err := w.WriteAll(rows); err != nil {
		return nil, fmt.Errorf("writing the curve: %w", err)
	}
	return b.Bytes(), nil
}

// curvePNG draws the quantities one below the other, over the same updates.
func curvePNG(points []train.Point) ([]byte, error) {
	var rows [][]*plot.Plot
	for i, q := range quantities {
		p := plot.New()
		p.Y.Label.Text = q.label
		if i == len(quantities)-1 {
			p.X.Label.Text = "updates"
		}
		var line plotter.XYs
		for _, point := range points {
			if y := q.of(point); isFinite(y) { // the plotter refuses others
				line = append(line, plotter.XY{X: float64(point.Update), Y: y})
			}
		}
		p.Add(plotter.NewGrid())
		if len(line) > 0 {
			l, dots, err := plotter.NewLinePoints(line)
			if err != nil {
				return nil, fmt.Errorf("drawing the curve: %w", err)
			}
			l.Width, dots.Radius = vg.Points(1.5), vg.Points(1.5)
			l.Color, dots.Color = color.RGBA{B: 0xb0, A: 0xff}, color.RGBA{B: 0xb0, A: 0xff}
			p.Add(l, dots)
		}
		rows = append(rows, []*plot.Plot{p})
	}
	img := vgimg.New(18*vg.Centimeter, 22*vg.Centimeter)
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadY: vg.Points(8), PadTop: vg.Points(8), PadBottom: vg.Points(8), PadRight: vg.Points(8), PadLeft: vg.Points(8)}
	for i, c := range plot.Align(rows, tiles, draw.New(img)) {
		rows[i][0].Draw(c[0])
	}
	var b bytes.Buffer
	if _, err := (vgimg.PngCanvas{Canvas: img}).WriteTo(&b); err != nil {
		return nil, fmt.Errorf("drawing the curve: %w", err)
	}
	return b.Bytes(), nil
}
