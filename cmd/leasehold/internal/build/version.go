// Package build describes the source that this binary was built from.
package build

import (
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// release is set by the linker in release builds.
var release string

// Info describes the source that this binary was built from.
type Info struct {
	Version  string    `json:"version"` // of a release such as 0.1.0, or else Go's version of the module
	Commit   string    `json:"commit,omitempty"`
	Time     time.Time `json:"time,omitzero"`     // of the commit
	Modified bool      `json:"modified,omitzero"` // the source had changes that are not in the commit
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
}

// Read returns the Info of this binary.
func Read() Info {
	of := Info{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return of
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			of.Commit = s.Value
		case "vcs.time":
			of.Time, _ = time.Parse(time.RFC3339, s.Value)
		case "vcs.modified":
			of.Modified = s.Value == "true"
		}
	}
	if of.Version == "" {
		of.Version = strings.TrimPrefix(info.Main.Version, "v")
	}
	return of
}

// Version is the version of this binary.
func Version() string {
	if v := Read().Version; v != "" {
		return v
	}
	return "(unknown)"
}
