package daemon

import (
	"cmp"
	"fmt"
	"runtime/debug"
	"strings"
)

// version is set by builds that know it better than Go does: -ldflags "-X <package>.version=v1.2.3".
var version string

const (
	unknown = "unknown"
	// devel is the version of a build of a checkout without tags, and of go run.
	devel = "devel"
)

// Build identifies a build. What is not known is "unknown".
type Build struct {
	Version string `json:"version"`
	// of the version control system; it ends in -dirty when the tree had uncommitted changes
	Revision  string `json:"revision"`
	GoVersion string `json:"go_version"`
}

// CurrentBuild is the running program.
func CurrentBuild() Build {
	info := Build{Version: version}
	if recorded, ok := debug.ReadBuildInfo(); ok {
		info.Version = cmp.Or(info.Version, strings.Trim(recorded.Main.Version, "()")) // Go writes (devel)
		info.Revision = revision(recorded.Settings)
		info.GoVersion = recorded.GoVersion
	}
	info.Version = cmp.Or(info.Version, unknown)
	info.Revision = cmp.Or(info.Revision, unknown)
	info.GoVersion = cmp.Or(info.GoVersion, unknown)
	return info
}

// Line says which build a program is: "unlocker v1.2.3 (revision 4f2a…, go1.26.0)".
func (i Build) Line(program string) string {
	detail := i.GoVersion
	switch {
	case i.Revision != unknown:
		detail = "revision " + i.Revision + ", " + detail
	case i.Version == devel:
		detail += "; built without a revision, as by go run"
	}
	return fmt.Sprintf("%s %s (%s)", program, i.Version, detail)
}

func revision(settings []debug.BuildSetting) string {
	recorded := map[string]string{}
	for _, s := range settings {
		recorded[s.Key] = s.Value
	}
	if recorded["vcs.revision"] != "" && recorded["vcs.modified"] == "true" {
		return recorded["vcs.revision"] + "-dirty"
	}
	return recorded["vcs.revision"]
}
