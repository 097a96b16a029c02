// Package version tells what this binary is.
package version

import (
	"runtime/debug"
	"sync"
)

// release is set by the linker for released binaries: -X kici/internal/kit/version.release=1.2.3.
var release string

// Info is what a binary knows of itself. Commit and Date are empty in a build without version control.
type Info struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"`
	Go      string `json:"go"`
}

// Read tells what this binary is.
var Read = sync.OnceValue(func() Info {
	info := Info{Version: "0.1.0-dev"}
	if release != "" {
		info.Version = release
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	info.Go = build.GoVersion
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			info.Commit = s.Value
		case "vcs.time":
			info.Date = s.Value
		}
	}
	return info
})
