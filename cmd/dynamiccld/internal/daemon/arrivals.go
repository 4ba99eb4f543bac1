package daemon

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"

	"dynamiccl/nccltuner"
)

// arrivals tells of ranks' files that appear in the directory, at once: a rank waits for its first plan for milliseconds
// (nccltuner/plugin/answer.c), and the directory is looked at ten times a second. Where the kernel watches no more directories
// ranks are found as ever, only later. stop returns when nothing runs any more.
func arrivals(dir string, came func()) (stop func(), err error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return func() {}, err
	}
	if err := watcher.Add(dir); err != nil {
		watcher.Close()
		return func() {}, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case event, open := <-watcher.Events:
				if !open {
					return
				}
				if event.Has(fsnotify.Create) && nccltuner.OfRanks(filepath.Base(event.Name)) {
					came()
				}
			case _, open := <-watcher.Errors: // events that were lost; the next look finds all
				if !open {
					return
				}
			}
		}
	}()
	return func() { watcher.Close(); <-done }, nil
}
