//go:build clients

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// realPath is the PATH before the tests left their own.
var realPath = os.Getenv("PATH")

// holders are the locks of the demo's holders in other languages, with what their pages show.
func holders() map[string][]string {
	const source = "https://github.com/clustermutex/unlocker/blob/main/cmd/mutexdev/demo/holders/"
	return map[string][]string{
		"analytics/funnel": {"python/", "analytics", "of 24", source + "funnel.py#L", ">load_day<", "process_start"},
		"newsletter/autumn": {"ruby/", "crm", "of 40000 sent", source + "newsletter.rb#L", ">send_newsletter<",
			"process_start"},
		"website/sitemap": {"typescript/", "website", "of 6", source + "sitemap.mjs#L", ">writeSitemap<",
			"process_start"},
	}
}

// TestEveryLanguageHoldsALock needs Python, Ruby and Node, and what npm builds in clients/typescript.
func TestEveryLanguageHoldsALock(t *testing.T) {
	tmp := t.TempDir()
	dev, dashboard := program(t, realPath, tmp, "4")
	if strings.Contains(dev.Output(), "left out") {
		t.Fatalf("a language is missing:\n%s", dev.Output())
	}
	for lock, shown := range holders() {
		proctest.Eventually(t, "the page shows the holder of "+lock, func() error {
			at := "http://" + dashboard + "/lock?name=" + url.QueryEscape(lock)
			page := html.UnescapeString(get(t, at))
			var missing []error
			for _, want := range append(shown, "boot_id", "pid_namespace") {
				if !strings.Contains(page, want) {
					missing = append(missing, fmt.Errorf("%s does not show %q", at, want))
				}
			}
			return errors.Join(missing...)
		})
	}

	dirs, err := filepath.Glob(filepath.Join(tmp, "mutexdev-demo-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("the clients are in %q, %v", dirs, err)
	}
	if got := processes(t, dirs[0]); len(got) < len(holders()) {
		t.Fatalf("%d processes run the holders: %v", len(got), got)
	}
	dev.Kill()
	proctest.Eventually(t, "no holder outlives a killed mutexdev", func() error {
		if left := processes(t, dirs[0]); len(left) > 0 {
			return fmt.Errorf("still there: %v", left)
		}
		return nil
	})
}

func TestEveryLanguageReleasesItsLockWhenMutexdevEnds(t *testing.T) {
	tmp, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
	dev, dashboard := program(t, realPath, tmp, "4", "--data-dir="+data)
	all := func(held int) func() error {
		return func() error {
			var page struct{ Data []struct{ Name string } }
			if err := json.Unmarshal([]byte(get(t, "http://"+dashboard+"/api/v1/locks")), &page); err != nil {
				return err
			}
			n, stays := 0, false
			for _, lock := range page.Data {
				if holders()[lock.Name] != nil {
					n++
				}
				stays = stays || lock.Name == "reports/weekly"
			}
			if n != held || !stays {
				return fmt.Errorf("%d locks are held, want %d; the lasting lock is held: %v", n, held, stays)
			}
			return nil
		}
	}
	proctest.Eventually(t, "all locks are held", all(len(holders())))
	if code := dev.Terminate(t); code != 0 {
		t.Errorf("mutexdev ended with status %d", code)
	}
	_, dashboard = program(t, realPath, t.TempDir(), "4", "--data-dir="+data, "--no-demo")
	proctest.Eventually(t, "all locks were released", all(0))
	if left, _ := filepath.Glob(filepath.Join(tmp, "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// processes returns the command lines that contain a text.
func processes(t *testing.T, text string) (found []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	proctest.Must(t, err)
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(line), text) {
			found = append(found, regexp.MustCompile("\x00").ReplaceAllString(string(line), " "))
		}
	}
	return found
}
