// Package ending has signals end a program: the first one in order, a later one at once.
package ending

import (
	"context"
	"os"
	"os/signal"
	"time"
)

// Told is how long signals count as one: timeout(1) and launchers send theirs to the process and to its group, which is no second
// word of anybody's.
const Told = 300 * time.Millisecond

// Context ends with the first of the signals. Once it was told, the next one does to the program what it does to any.
func Context(signals ...os.Signal) context.Context {
	ctx, _ := Also(context.Background(), signals...)
	return ctx
}

// Also ends a context with these signals too, until release.
func Also(parent context.Context, signals ...os.Signal) (ctx context.Context, release func()) {
	ctx, stop := signal.NotifyContext(parent, signals...)
	context.AfterFunc(ctx, func() {
		time.Sleep(Told)
		stop()
	})
	return ctx, stop
}
