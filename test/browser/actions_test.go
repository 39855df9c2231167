//go:build browser

package browser

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// helpful is a stage whose mutexdash lets ann do everything, with a lock that many wait for.
func helpful(t *testing.T) *stage {
	t.Helper()
	permissions := filepath.Join(t.TempDir(), "permissions.yaml")
	if err := os.WriteFile(permissions,
		[]byte("everyone: [view, backtrace]\nusers: {ann@example.org: [unlock, ask, extend]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStage(t, "--web.identity=header", "--web.trusted-proxies=127.0.0.1",
		"--web.permissions-file="+permissions, "--web.enable-force-unlock", "--web.enable-ask-and-extend",
		"--web.link=logs=https://logs.example/search?q={host}")
	s.hold(lock{name: "orders/settle", owner: "orders", host: "orders-7c9d8f6b5-x2k7p", pid: "1", trace: goTrace,
		purpose: "settlement of the day, batch 12 of 40", held: 50 * time.Minute, alert: -18 * time.Minute,
		unlock: 4*time.Minute + 30*time.Second, alive: "order 4,410 of 12,002"})
	for i := range 12 {
		s.wait("orders/settle", "checkout", fmt.Sprintf("checkout-%d", i), "settles the order of a customer",
			40*time.Minute-time.Duration(i)*time.Second)
	}
	return s
}

func TestActionsAreOnTheFirstScreenOfEveryDevice(t *testing.T) {
	t.Parallel()
	s := helpful(t)
	b := newTab(t, s)
	b.login("ann@example.org")
	for _, size := range [][2]int64{{360, 740}, {768, 900}, {960, 600}, {1280, 720}} {
		b.size(size[0], size[1])
		b.open(s.url + "lock?name=orders/settle")
		b.until("the scripts", `document.documentElement.classList.contains("scripted")`)
		outside := ask[[]string](b, `[...document.querySelectorAll(".actions :is(a, button)")].filter((e) => {
			const r = e.getBoundingClientRect();
			return r.bottom > innerHeight || r.right > innerWidth || r.height < 32 || r.width < 32;
		}).map((e) => e.textContent)`)
		if len(outside) > 0 {
			t.Errorf("%d × %d: %q are not on the first screen, or too small", size[0], size[1], outside)
		}
		b.narrow()
	}
	names := ask[[]string](b, `[...document.querySelectorAll(".actions :is(a, button)")]
		.map((e) => e.ariaLabel || e.textContent)`)
	want := []string{"Give more time…", "Ask to finish…", "Force unlock…", "logs",
		"copy kubectl logs: kubectl logs --since=30m orders-7c9d8f6b5-x2k7p",
		"copy for the incident: what is the matter, code location, waiters, link"}
	if !slices.Equal(names, want) {
		t.Errorf("ears hear the actions %q, want %q", names, want)
	}
	report := b.copies(`.actions .copy[aria-label^="copy for"]`)
	for _, says := range []string{"[prod-eu] orders/settle is 18m late, its holder works (order 4,410 of 12,002, ",
		" 12 wait, the longest for 40m. No auto-unlock: no unlocker is running.\nHeld by orders on ",
		"At: /src/search/internal/reindex/indexer.go:91 in ", "\nWaiting: checkout on checkout-0:17 (40m), ",
		", and 7 more\n", s.url + "lock?name=orders/settle&hold="} {
		if !strings.Contains(report, says) {
			t.Errorf("the report for the incident does not say %q:\n%s", says, report)
		}
	}
	b.scripts(false)
	b.open(s.url + "lock?name=orders/settle")
	shown := ask[[]string](b, `[...document.querySelectorAll(".actions :is(a, button)")]
		.filter((e) => e.checkVisibility()).map((e) => e.textContent)`)
	if !slices.Equal(shown, want[:4]) {
		t.Errorf("without scripts the actions are %q, want %q", shown, want[:4])
	}
	b.click(`details.fold summary`)
	b.until("the other waiters", `[...document.querySelectorAll("details.fold td")].filter((e) => e.checkVisibility())
		.some((e) => e.textContent === "checkout-11:17")`)
}
