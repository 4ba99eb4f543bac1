package version

import (
	"runtime/debug"
	"testing"
)

func TestFill(t *testing.T) {
	build := &debug.BuildInfo{Main: debug.Module{Version: "v0.3.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}}}
	i := Info{}
	i.fill(build)
	if i.Version != "v0.3.0" || i.Revision != "abc" || !i.Modified || i.Time == "" {
		t.Errorf("%+v", i)
	}
	i = Info{Version: "linked"}
	i.fill(build)
	if i.Version != "linked" {
		t.Errorf("the linker's word comes first: %+v", i)
	}
}

func TestOf(t *testing.T) {
	if i := Of("", 7); i.Version == "" || i.Go == "" || i.Platform == "" || i.ABI != 7 {
		t.Errorf("%+v", i)
	}
}
