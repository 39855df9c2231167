//go:build browser

package browser

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestFromTheListThroughAFilterToALockAndBack(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.hold(lock{name: "billing/invoice-run", owner: "billing", host: "billing-0", purpose: "nightly invoices",
		held: time.Minute, alert: time.Hour, unlock: 2 * time.Hour})
	s.hold(lock{name: "catalog/sync", owner: "catalog", host: "catalog-0", held: time.Minute, alert: time.Hour,
		unlock: 2 * time.Hour})
	b.open(s.url)
	b.until("both locks", `document.querySelectorAll(".locks tbody").length === 2`)

	b.press("/")
	b.press("nightly\r")
	b.until("the filtered list", `location.search.includes("q=nightly")
		&& document.querySelectorAll(".locks tbody").length === 1`)
	if got := b.names(); !slices.Equal(got, []string{"billing/invoice-run"}) {
		t.Fatalf("the filter leaves %q", got)
	}
	b.press("j\r")
	b.until("the lock page", `document.querySelector(".lock-head h1 .lock-name").textContent === "billing/invoice-run"`)
	if text := ask[string](b, `document.querySelector(".lock-head").textContent`); !strings.Contains(text,
		"Held by billing on billing-0") {
		t.Errorf("the lock page says %q", text)
	}
	b.press("u")
	b.until("the list again", `document.querySelector(".locks")`)
}

func TestLockThatStartsAlertingMovesUpWithoutAReload(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.many(3)
	s.unlocker("alert-only")
	s.hold(lock{name: "z/late", owner: "z", host: "z-0", held: time.Minute, alert: 15 * time.Second, unlock: time.Hour,
		purpose: "takes its time"})
	b.open(s.url)
	b.until("four locks", `document.querySelectorAll(".locks tbody").length === 4`)
	if class := ask[string](b, `document.querySelector("tbody:has([href*='late'])").className`); class != "held" {
		t.Fatalf("the lock is %s at first, want held", class)
	}
	ask[int](b, `window.here = 1`)
	b.until("the lock on top", `document.querySelector(".locks tbody.alerting:nth-of-type(1) .name")?.textContent
		=== "z/late"`, 40*time.Second)
	b.until("the title", `document.title.startsWith("(1!)")`)
	b.until("the answer", `document.querySelector(".verdict").textContent.includes(" late, and its holder has never")`)
	if ask[string](b, `document.querySelector(".verdict").className`) != "verdict silent alerting" ||
		ask[int](b, `window.here || 0`) != 1 {
		t.Error("the page was reloaded, or its verdict has another look")
	}
}

func TestFocusAndSelectionSurviveAHundredUpdates(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.many(12)
	s.hold(lock{name: "a/changes", owner: "a", host: "a-0", held: time.Minute, alert: -time.Second, unlock: time.Hour,
		purpose: "all the time"})
	b.open(s.url)
	b.until("all locks", `document.querySelectorAll(".locks tbody").length === 13`)
	for range 4 {
		b.press("j")
	}
	const where = `document.activeElement.textContent + " " + getSelection() + " " + Math.round(scrollY) + " "
		+ Math.round(document.activeElement.getBoundingClientRect().top)`
	ask[bool](b, `(getSelection().selectAllChildren(document.querySelector("tbody:nth-of-type(6) .name")),
		scrollTo(0, 40), true)`)
	before := ask[string](b, where)
	if !strings.HasPrefix(before, "batch/") {
		t.Fatalf("j leads to %q", before)
	}
	for i := range 100 {
		was := ask[string](b, `document.getElementById("live").dataset.etag`)
		s.put("a/changes", metadata.FieldAlive, metadata.FormatAlive(time.Now(), fmt.Sprintf("step %d", i)))
		b.until("an update", fmt.Sprintf(`(document.dispatchEvent(new KeyboardEvent("visibilitychange")),
			document.getElementById("live").dataset.etag !== %q)`, was))
	}
	b.until("the last step", `document.querySelector(".locks").textContent.includes("step 99")`)
	if after := ask[string](b, where); after != before {
		t.Errorf("focus, selection and place were %q and are %q", before, after)
	}
}
