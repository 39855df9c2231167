//go:build browser

package browser

import "testing"

func TestWhatWasTypedOutlivesTheLogin(t *testing.T) {
	t.Parallel()
	s := gentleStage(t)
	b := newTab(t, s)
	s.night()
	b.login("ann@example.org")
	b.act(s, "ask")
	b.until("the script", `performance.getEntriesByType("resource").some((e) => e.name.endsWith("/views.js"))
		&& document.querySelector("#views form")`)
	b.do(typeInto("#reason", "the deploy waits"), typeInto("#ticket", "OPS-12"))
	b.login("")
	ask[bool](b, `window.sent = true`)
	b.click(`form.force button[type="submit"]`)
	b.until("the refusal", `!window.sent && document.body.innerText.includes("Sign in")`)
	b.login("ann@example.org")
	b.act(s, "ask")
	b.until("what was typed", `document.getElementById("reason").value === "the deploy waits"
		&& document.getElementById("ticket").value === "OPS-12"`)
	b.act(s, "extend")
	b.until("the script", `document.querySelector("#views form")`)
	if typed := ask[string](b, `document.getElementById("reason").value`); typed != "" {
		t.Errorf("another form has %q", typed)
	}
}
