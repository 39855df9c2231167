//go:build alerts

package alerts

import (
	"flag"
	"path/filepath"
	"testing"
)

var pictures = flag.String("pictures", "", "write pictures into this `directory`")

// picture is what Prometheus shows of the alerts, for the docs.
func picture(t *testing.T, prometheus string) {
	t.Helper()
	if *pictures == "" {
		return
	}
	tells(t, nil, tool(t, "chromium"), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--hide-scrollbars", "--user-data-dir="+t.TempDir(), "--window-size=1100,900",
		"--virtual-time-budget=5000", "--screenshot="+filepath.Join(*pictures, "alerts.png"), prometheus+"/alerts")
}
