package cli

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by builds that know it better than Go: -ldflags "-X <package>.version=v1.2.3".
var version string

type versionJSON struct {
	Version   string `json:"version"`
	Revision  string `json:"revision"`
	GoVersion string `json:"go_version"`
}

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "The version of this program",
		Example: `  mutexctl version
  mutexctl version -o json | jq -r .version`,
		Args: wants(0, 0, ""),
	}
	format := output(cmd, formatTable, formatJSON)
	cmd.RunE = func(*cobra.Command, []string) error {
		v := buildVersion()
		if format.json() {
			return writeJSON(a.Stdout, v)
		}
		_, err := fmt.Fprintf(a.Stdout, "mutexctl %s (revision %s, %s)\n", v.Version, v.Revision, v.GoVersion)
		return err
	}
	return cmd
}

// buildVersion is what the build wrote into the binary.
func buildVersion() versionJSON {
	v := versionJSON{Version: cmp.Or(version, "unknown"), Revision: "unknown", GoVersion: "unknown"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.GoVersion = info.GoVersion
	if version == "" && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}
