package version

import (
	"runtime"
	"runtime/debug"
)

// Info is a build. Its JSON keys are an interface: add, never rename.
type Info struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified"`
	Time     string `json:"time,omitempty"` // of the revision
	Go       string `json:"go"`
	Platform string `json:"platform"`
	ABI      int    `json:"abi"` // of the shared memory: plugin and daemon must have the same
}

// Of gives the build; linked is what the linker set, "" when it set nothing.
func Of(linked string, abi int) Info {
	i := Info{Version: linked, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, ABI: abi}
	build, ok := debug.ReadBuildInfo()
	if ok {
		i.fill(build)
	}
	if i.Version == "" {
		i.Version = "unknown"
	}
	return i
}

func (i *Info) fill(build *debug.BuildInfo) {
	if i.Version == "" {
		i.Version = build.Main.Version
	}
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			i.Revision = s.Value
		case "vcs.modified":
			i.Modified = s.Value == "true"
		case "vcs.time":
			i.Time = s.Value
		}
	}
}
