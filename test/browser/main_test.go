//go:build browser

// Package browser drives the pages of the real mutexdash with a real Chromium against a real etcd, and checks what
// users need: that pages update, stay still while being read, show when they are stale, and are accessible.
//
// It needs Chromium, axe-core and some time, so it has the build tag browser: `make browser`. It also makes the
// screenshots of the documentation: `make screenshots`.
package browser

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// Things that are built or found once for all tests.
var (
	programs *proctest.Programs
	axe      string          // source of axe-core
	chromium context.Context // the one browser; every test has a profile of its own in it
)

var (
	axeFile = flag.String("axe", filepath.Join("..", "..", ".tools", "axe", "node_modules", "axe-core", "axe.min.js"),
		"axe-core, one file")
	pictures = flag.String("pictures", "",
		"directory for the pictures of the documentation; without it they are only made and checked")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	end, err := prepare()
	defer end()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func prepare() (end func(), err error) {
	end = func() {}
	source, err := os.ReadFile(*axeFile)
	if err != nil {
		return end, fmt.Errorf("axe-core is missing (make browser installs it): %w", err)
	}
	axe = string(source)
	path, err := exec.LookPath("chromium")
	if err != nil {
		return end, errors.New("there is no chromium on this machine, and without it nobody has looked at the pages: " +
			"apt-get install chromium")
	}
	if programs, err = proctest.Build("mutexdash", "unlocker"); err != nil {
		return end, err
	}
	profile := filepath.Join(programs.Dir, "profile")
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.WindowSize(1300, 800), chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("hide-scrollbars", true))...)
	var closeBrowser func()
	chromium, closeBrowser = chromedp.NewContext(allocator)
	end = func() {
		closeBrowser()
		stop()
		programs.Remove()
	}
	if err := chromedp.Do(chromium); err != nil {
		return end, fmt.Errorf("%s does not start: %w", path, err)
	}
	return end, nil
}
