//go:build alerts

package alerts

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var pictures = flag.String("pictures", "", "write pictures into this `directory`")

// opened shows what an alert that fires says, and hides the others and the query, on Prometheus' own page.
const opened = `
$('.alert-danger.alert_header').each(function() { $(this).next().show() });
$('div.show-annotations').click(); $('tr.alert-success').hide(); $('.alert_details pre').parent().hide();
$('#alertsTable > tbody > tr').filter(function() { return !$(this).is('.alert_header,.alert_details') }).hide();
$('#alertFilters').hide(); $('div.show-annotations').hide(); true`

// picture is what Prometheus shows of the alerts, for the docs.
func picture(t *testing.T, prometheus string) {
	t.Helper()
	if *pictures == "" {
		return
	}
	tab, end := browser(t, 1200, 1010)
	defer end()
	shot, err := photograph(tab, prometheus+"/classic/alerts")
	if err == nil {
		err = os.WriteFile(filepath.Join(*pictures, "alerts.png"), shot, 0o644)
	}
	proctest.Must(t, err)
}

// browser is a tab of a Chromium with nothing in it.
func browser(t *testing.T, width, height int) (tab context.Context, end func()) {
	t.Helper()
	allocator, stop := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(tool(t, "chromium")), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.WindowSize(width, height),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("hide-scrollbars", true))...)
	tab, closeTab := chromedp.NewContext(allocator)
	tab, cancel := context.WithTimeout(tab, time.Minute)
	return tab, func() {
		cancel()
		closeTab()
		stop()
	}
}

func photograph(tab context.Context, url string) ([]byte, error) {
	if err := chromedp.Do(tab, chromedp.Navigate(url)); err != nil {
		return nil, err
	}
	if _, err := chromedp.Run(tab, chromedp.Evaluate[bool](opened)); err != nil {
		return nil, err
	}
	return chromedp.Run(tab, chromedp.CaptureScreenshot())
}
