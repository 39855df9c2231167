//go:build browser

package browser

import (
	"fmt"
	"strings"
	"testing"
)

// copies clicks a button that copies and returns what it copied.
func (b *tab) copies(selector string) string {
	b.t.Helper()
	b.until("the button", fmt.Sprintf(`document.querySelector(%q)`, selector))
	// it says so for 1.5 s, and the live page may replace it meanwhile
	return ask[string](b, fmt.Sprintf(`new Promise((done) => {
		const button = document.querySelector(%q);
		let copied;
		Object.defineProperty(navigator, "clipboard", { configurable: true,
			value: { writeText: async (text) => { copied = text; } } });
		new MutationObserver(() => button.textContent === "copied" && done(copied))
			.observe(button, { childList: true, characterData: true, subtree: true });
		button.click();
	})`, selector))
}

func TestNamesCommandsAndBacktracesCanBeCopied(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.night()
	for _, c := range []struct{ page, button, want string }{
		{"?q=owner:billing", ".locks .copy", held},
		{"?q=owner:billing", ".meta .copy", "curl -s '" + s.url + "api/v1/locks?q=owner:billing'"},
		{"lock?name=" + held, ".lock-head .copy", held},
		{"lock?name=" + held, ".commands .copy", "kubectl get pod billing-7f9c5d-x2lqv"},
		{"lock?name=catalog/sync/eu", "[aria-labelledby=h-trace] .copy",
			"/srv/catalog/sync/eu.py:212 in import_price_list\n    for item in supplier.items():\n" +
				"/srv/catalog/sync/base.py:47 in run\n    self.import_price_list(supplier)\n" +
				"/usr/lib/python3.12/site-packages/celery/app/trace.py:477 in trace_task\n" +
				"    R = retval = fun(*args, **kwargs)"},
	} {
		b.open(s.url + c.page)
		if strings.HasPrefix(c.button, ".locks") {
			b.point(".locks tbody .name")
		}
		if got := b.copies(c.button); got != c.want {
			t.Errorf("%s on %s copies %q, want %q", c.button, c.page, got, c.want)
		}
	}
	b.until("the word comes back", `document.querySelector("[aria-labelledby=h-trace] .copy").textContent === "copy"`)
}

func TestButtonThatCopiesIsOutOfTheWayOfRows(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.night()
	b.open(s.url + "?q=owner:billing")
	const seen = `!!document.querySelector(".locks tbody:hover .copy")?.checkVisibility()`
	b.until("the rows", `document.querySelector(".locks tbody") && !document.querySelector(".locks .copy")`)
	b.point(".locks tbody .name")
	b.until("the button under the pointer", seen)
	b.point(".brand")
	b.until("no button", `!document.querySelector(".locks .copy")`)
	text := ask[string](b, `(getSelection().selectAllChildren(document.querySelector(".locks tbody tr")),
		getSelection().toString())`)
	whole := strings.HasPrefix(text, "alerting\t"+held+"\tbilling\t") && strings.HasSuffix(text, "\t3")
	if !whole || strings.Contains(text, "under") {
		t.Errorf("a selected row is %q, want what is seen, with tabs between the cells", text)
	}
}
