//go:build browser

package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

const hostileName = "<script>alert(1)</script>\u202e\"'\x01{{.}} \u65e5\u672c\u8a9e " +
	"averylongnamewithoutanyplacewhereitcouldbebrokenaveryveryverylongnameindeed/and/more"

func (s *stage) hostile() {
	s.hold(lock{name: hostileName, owner: "<img src=x onerror=alert(1)>", host: strings.Repeat("host", 40),
		purpose: "javascript:alert(1) " + strings.Repeat("long", 60),
		trace:   "<b>nothing</b>\n" + strings.Repeat("x", 500), held: 60e9, alert: -1e9, unlock: 3600e9})
}

func TestTargetsAreLargeEnoughForAThumb(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.night()
	b.size(360, 740)
	b.open(s.url)
	b.until("the locks", `document.querySelectorAll(".locks tbody").length === 12`)
	const targets = "nav a, .locks .name, .count, .paging a, .paging button, input:not([type=hidden])"
	small := ask[[]string](b, `[...document.querySelectorAll("`+targets+`")]
		.map((e) => [e, e.getBoundingClientRect()])
		.filter(([, r]) => r.height > 0 && r.height < 39)
		.map(([e, r]) => r.height + " " + e.outerHTML.slice(0, 100))`)
	if len(small) > 0 {
		t.Errorf("hard to hit:\n%s", strings.Join(small, "\n"))
	}
}

func TestBrowserWouldComplain(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	b.open(s.url)
	ask[bool](b, `document.body.append(Object.assign(document.createElement("p"), {style: "color: red"})),
		document.body.lastChild.setAttribute("style", "color: red"), true`)
	ask[bool](b, `setTimeout(() => { throw new Error("a failing script") }), true`)
	var all []string
	proctest.Eventually(t, "the browser complains of a style that the policy forbids, and of a failing script",
		func() error {
			all = append(all, b.troubles()...)
			text := fmt.Sprint(all)
			if !strings.Contains(text, "Content Security Policy") || !strings.Contains(text, "a failing script") {
				return fmt.Errorf("it complains %q", all)
			}
			return nil
		})
}

func TestEverythingWorksWithoutScripts(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	b := newTab(t, s)
	s.night()
	s.unlocker("alert-only")
	b.scripts(false)
	b.open(s.url)
	if n := ask[int](b, `document.querySelectorAll(".locks tbody").length`); n != 12 {
		t.Fatalf("%d locks are shown, want 12", n)
	}
	if text := ask[string](b, `document.body.innerText`); !strings.Contains(text,
		"late, and its holder has never reported.") || !strings.Contains(text, "14m ago") {
		t.Errorf("without scripts the page says %s", text)
	}
	buttons := ask[int](b, `[...document.querySelectorAll("button")].filter((e) => e.checkVisibility()).length`)
	if buttons > 0 {
		t.Errorf("%d buttons that do nothing are shown", buttons)
	}
	b.do(typeInto("#q", "owner:catalog\r"))
	b.until("the filtered list", `document.querySelectorAll(".locks tbody").length === 1`)
	b.open(ask[string](b, `document.querySelector(".locks .name").href`))
	if text := ask[string](b, `document.body.innerText`); !strings.Contains(text,
		"Held by catalog on catalog-55d8b-q7xzn") || !strings.Contains(text, "/srv/catalog/sync/eu.py:212") {
		t.Errorf("without scripts the lock page says %s", text)
	}
}
