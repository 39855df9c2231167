// Package e2e runs the real binaries as real processes against a real etcd, breaks things and looks at what is left.
// What one room promises is tested there; here stands what only the whole can show.
//
// It needs nothing but Go: the binaries are built once per run, and etcd is this test binary once more.
package e2e

import (
	"os"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// programs are the binaries.
var programs *proctest.Programs

func TestMain(m *testing.M) {
	etcdtest.Member()
	proctest.Overlap()
	os.Exit(proctest.Main(m, &programs, "unlocker", "mutexdash", "mutexctl"))
}
