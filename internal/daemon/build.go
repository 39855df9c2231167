package daemon

import (
	"cmp"
	"runtime/debug"
)

// version is set by builds that know it better than Go: -ldflags "-X <package>.version=v1.2.3".
var version string

// Build says which build of a program this is. What is not known is "unknown".
type Build struct{ Version, Revision, GoVersion string }

// BuildInfo is what the tool chain wrote into this program.
func BuildInfo() Build {
	b := Build{Version: version}
	if info, ok := debug.ReadBuildInfo(); ok {
		b.GoVersion = info.GoVersion
		b.Version = cmp.Or(b.Version, info.Main.Version)
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		b.Revision = settings["vcs.revision"]
		if b.Revision != "" && settings["vcs.modified"] == "true" {
			b.Revision += "-dirty"
		}
	}
	return Build{cmp.Or(b.Version, "unknown"), cmp.Or(b.Revision, "unknown"), cmp.Or(b.GoVersion, "unknown")}
}
