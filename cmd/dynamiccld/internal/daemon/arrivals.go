package daemon

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"dynamiccl/nccltuner"
)

// arrivals tells of ranks' files that appear in the directory, at once: a rank waits for its first plan for milliseconds
// (nccltuner/plugin/answer.c), and the directory is looked at ten times a second. Where the kernel watches no more directories the
// channel is nil, and ranks are found as ever, only later. stop returns when nothing runs any more.
func arrivals(dir string) (came <-chan struct{}, stop func(), err error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, func() {}, err
	}
	if err := watcher.Add(dir); err != nil {
		watcher.Close()
		return nil, func() {}, err
	}
	out, done := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case event, open := <-watcher.Events:
				if !open {
					return
				}
				if !event.Has(fsnotify.Create) || !nccltuner.OfRanks(filepath.Base(event.Name)) {
					continue
				}
				select {
				case out <- struct{}{}:
				default: // it will look
				}
			case _, open := <-watcher.Errors: // events that were lost; the next look finds all
				if !open {
					return
				}
			}
		}
	}()
	return out, func() { watcher.Close(); <-done }, nil
}
