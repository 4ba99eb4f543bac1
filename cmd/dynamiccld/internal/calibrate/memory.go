package calibrate

import (
	"context"
	"errors"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/workers"
)

// faster is by how much NCCL's default has to be so in NCCL's own memory to count as another: less is scatter.
const faster = 0.97

// errNoMemory says that ranks have to be started again, and not why a choice is left out.
var errNoMemory = errors.New("ranks have no memory of NCCL's")

// inNCCLMemory measures NCCL's default of a bucket, whose first point is measured, in memory of NCCL's own as well, and has it
// measured there from now on where it is faster. In a graph NCCL registers such memory by itself, and its ranks read and write each
// other's: on 2 H100 AllToAll of 16 MiB takes 38 us there and 54 in cudaMalloc's (NCCL 2.28.9). Whose buffers a program captures nobody
// can know here, ranks may differ in it, and a choice has to be better than the default in either; that of our kernels takes the
// same in both. NCCL's other choices are measured in the ranks' buffers, which at worst makes them dearer than they are.
func (t *tuning) inNCCLMemory(ctx context.Context, b *bucket) error {
	if t.at.registered || t.noMemory {
		return nil
	}
	us, first, points := b.us, b.first, b.points[actions.Default]
	b.memory = workers.NCCLMemory
	values, err := t.measure(ctx, b, actions.Default)
	if errors.Is(err, workers.ErrRefused) {
		t.noMemory = true // NCCL before 2.19, or no room for it: programs will not have it either
		if _, gone := t.ranks.Call(ctx, b.name, b.bytes, 1); gone != nil {
			err = errors.Join(errNoMemory, gone) // of one rank, and the others wait for it
		} else {
			err = nil
		}
	}
	if err == nil && !t.noMemory && b.us < faster*us {
		b.first, b.points[actions.Default] = values, b.points[actions.Default][len(points):]
		return nil
	}
	b.us, b.first, b.points[actions.Default], b.memory = us, first, points, ""
	return err
}
