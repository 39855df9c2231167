package daemon_test

import (
	"testing"

	"github.com/clustermutex/unlocker/internal/daemon"
)

func TestBuildIsNamedInOneLine(t *testing.T) {
	for want, info := range map[string]daemon.Build{
		"mutexctl v1.2.3 (revision 4f2a, go1.26.0)": {Version: "v1.2.3", Revision: "4f2a", GoVersion: "go1.26.0"},
		"mutexctl v1.2.3-4-g4f2a (go1.26.0)": {
			Version: "v1.2.3-4-g4f2a", Revision: "unknown", GoVersion: "go1.26.0"},
		"mutexctl devel (revision 4f2a-dirty, go1.26)": {Version: "devel", Revision: "4f2a-dirty", GoVersion: "go1.26"},
		"mutexctl devel (go1.26; built without a revision, as by go run)": {Version: "devel", Revision: "unknown",
			GoVersion: "go1.26"},
	} {
		if got := info.Line("mutexctl"); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
