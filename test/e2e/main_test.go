// Package e2e runs the real binaries as real processes against a real etcd, breaks things and looks at what is left.
// What one room promises is tested there; here stands what only the whole can show.
//
// It needs nothing but Go: the binaries are built once per run, and etcd is this test binary once more.
package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/clustermutex/unlocker/internal/etcdtest"
)

// bin is the directory with the binaries.
var bin string

func TestMain(m *testing.M) {
	etcdtest.Member()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "unlocker-e2e"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	build := exec.Command("go", "build", "-o", bin, "./cmd/unlocker", "./cmd/mutexdash", "./cmd/mutexctl")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// lookAtSources makes go test run these tests again when a program changed: it remembers which directories a test
// opened, but knows nothing of what a child process did.
var lookAtSources = sync.OnceValue(func() error {
	for _, dir := range []string{"cmd", "internal", "pkg", "web"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir),
			func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return err
		}
	}
	return nil
})
