// Package build says what this binary was built from.
package build

import "runtime/debug"

// release is set by the linker, in builds from outside a repository.
var release string

// Version is what this binary was built from.
func Version() string {
	if release != "" {
		return release
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(unknown)"
}
