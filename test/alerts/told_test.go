//go:build alerts

package alerts

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var updatePage = flag.Bool("update", false, "write the messages into docs/howto/receivers.md and testdata")

// fixed is when the messages on the page were sent, as far as their readers know.
var fixed = time.Date(2026, 3, 14, 3, 10, 0, 0, time.UTC)

// transcript is a message with the times of the page.
func transcript(now time.Time, text string) string {
	for pattern, layout := range map[string]string{
		`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`: time.RFC3339,
		`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`:         "2006-01-02 15:04:05Z",
		`since \d\d:\d\d:\d\dZ`:                   "since 15:04:05Z",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllStringFunc(text, func(found string) string {
			at, err := time.Parse(layout, found)
			switch {
			case err != nil, at.IsZero():
				return found
			case at.Year() == 0: // a time of day
				at = now.Truncate(24 * time.Hour).Add(at.Sub(at.Truncate(24 * time.Hour)))
			}
			return at.Add(fixed.Sub(now)).Format(layout)
		})
	}
	for pattern, shown := range map[string]string{
		`"fingerprint": "[0-9a-f]{16}"`: `"fingerprint": "60e76c9d2ffd0aeb"`,
		`(?m) +$`:                       "",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, shown)
	}
	return strings.TrimRight(text, "\n") + "\n"
}

// pages is locked while a test writes one, because another may write the same.
var pages sync.Mutex

// shows expects a message on the page of the receivers or in the file of all others, or writes it there.
func (r *receivers) shows(name string, m message) {
	r.Helper()
	got := transcript(r.now, m.readable(r.T))
	pages.Lock()
	defer pages.Unlock()
	begin := "<!-- message: " + name + " -->\n```text\n"
	for _, page := range []string{"docs/howto/receivers.md", "test/alerts/testdata/messages.txt"} {
		if strings.Contains(read(r.T, page), begin) {
			proctest.GoldenPart(r, top+page, *updatePage, regexp.QuoteMeta(begin)+"((?s:.*?))```\n", got)
			return
		}
	}
	r.Fatalf("no page has a place for the message %s", name)
}

// TestReceiverMessagesMatchTheDocumentation sends alerts as Prometheus makes them through Alertmanager, with the
// shipped configuration, to receivers of every kind.
func TestReceiverMessagesMatchTheDocumentation(t *testing.T) {
	t.Parallel()
	r := newReceivers(t)

	var alerts []told
	for i := range 50 { // each of another owner
		invoice := holdOf(fmt.Sprintf("billing/invoice/%02d", i), fmt.Sprintf("service-%02d", i), "")
		alerts = append(alerts, invoice.overdue(r.now.Add(-time.Duration(i*37%50+1)*time.Minute)))
	}
	settle := holdOf("payments/settle", "payments-settler", "payments")
	settle.waiters = 3
	settle.acknowledged = r.now.Add(time.Hour)
	reindex := holdOf("search/reindex", "search-indexer", "")
	reindex.waiters = 1
	alerts = append(alerts,
		settle.overdue(r.now.Add(-10*time.Minute)),
		reindex.overdue(r.now.Add(-2*time.Hour)), reindex.expired(r.now.Add(-time.Hour)),
		holdOf("data/import", "importer", "data").overdue(r.now.Add(-20*time.Minute)))
	post(t, r.am, alerts...)

	r.shows("slack", r.wants("/slack#payments", "Lock payments/settle is held longer"))
	r.shows("mail", r.wants("payments-on-call@example.org", "Lock payments/settle is held longer"))
	r.shows("slack of many", r.wants("/slack#locks", "50 locks are held longer"))
	r.shows("pagerduty", r.wants("/pagerduty", "search/reindex is past its deadline"))
	r.shows("opsgenie", r.wants("/opsgenie/v2/alerts", "search/reindex is past its deadline"))
	r.shows("webhook", r.wants("/webhook", "data/import"))
	proctest.Eventually(t, "the first deadline is not told beside the second",
		func() error { return inhibited(r.am, "UnlockerLockAlerting", "search/reindex") })

	post(t, r.am, ended(r.now, alerts)...)
	r.shows("slack resolved", r.wants("/slack#payments", "Resolved after 10m: Lock payments/settle was held"))
	r.wants("payments-on-call@example.org", "Resolved after 10m: Lock payments/settle was held")
	r.shows("slack of many, resolved", r.wants("/slack#locks", "Resolved: 50 locks were held"))
	r.wants("/pagerduty", "event_action: resolve\n")
	r.wants("/webhook", `"status": "resolved"`)

	// Alertmanager takes in one alert after the other, and tells of a group once a second here: of its end
	// perhaps twice.
	if n := len(r.all("/slack#locks")); n < 2 || n > 3 {
		t.Errorf("of 50 locks with one problem the chat is told %d times, want one alert and its end", n)
	}
	for to, foreign := range map[string]string{"/slack#payments": "data/import", "/webhook": "payments/settle",
		"/slack#locks": "payments/settle", "payments-on-call@example.org": "billing/invoice"} {
		for _, m := range r.all(to) {
			if strings.Contains(m.readable(t), foreign) {
				t.Errorf("%s is told of %s", to, foreign)
			}
		}
	}
}

// TestPastEventsAreAlertedOnce: the alert ends a quarter of an hour later, and there is nothing to say about that.
func TestPastEventsAreAlertedOnce(t *testing.T) {
	t.Parallel()
	r := newReceivers(t)
	for owner, team := range map[string]string{"payments-settler": "payments", "search-indexer": "", "importer": "data",
		"reports": ""} {
		post(t, r.am, holdOf(owner+"/job", owner, team).removed(r.now.Add(5*time.Second-15*time.Minute)))
	}
	r.shows("slack of an event", r.wants("/slack#locks", "Lock reports/job was auto-unlocked."))
	r.wants("/slack#payments", "was auto-unlocked")
	r.wants("payments-on-call@example.org", "was auto-unlocked")
	r.wants("/opsgenie/v2/alerts", "was auto-unlocked")
	r.wants("/webhook", `"status": "resolved"`) // a program may want to know
	proctest.Eventually(t, "Alertmanager forgets them", func() error { return quiet(r.am, "UnlockerLockAutoUnlocked") })
	for owner, team := range map[string]string{"payments-settler": "payments", "search-indexer": "", "reports": ""} {
		post(t, r.am, holdOf("next/"+owner, owner, team).overdue(r.now.Add(-time.Minute)))
	}
	for _, to := range []string{"/slack#locks", "/slack#payments", "payments-on-call@example.org",
		"/opsgenie/v2/alerts"} {
		r.wants(to, "is held longer")
		for _, m := range r.all(to) {
			text := m.readable(t)
			if strings.Contains(text, "Resolved") || strings.Count(text, "was auto-unlocked") > 1 {
				t.Errorf("%s is told\n%s", to, text)
			}
		}
		if n := len(r.all(to)); n != 2 {
			t.Errorf("%s is told %d times, want of the removal and of the next lock", to, n)
		}
	}
}

// checkHarmless expects every text that a webhook gets to be one short, visible line.
func checkHarmless(t *testing.T, m message) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(m.body))
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			break
		}
		text, _ := token.(string)
		hidden := strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsGraphic(c) })
		if err != nil || hidden || len(text) > 4096 {
			t.Fatalf("the webhook is told %q: %v", text, err)
		}
	}
	var told struct{ Alerts []alert }
	m.decode(t, &told)
	if name := told.Alerts[0].Labels["lock"]; len(name) > 128 || !strings.HasPrefix(name, "data<!channel>") {
		t.Errorf("the webhook is told of the lock %q", name)
	}
}

// TestHostileNamesAreHarmlessInEveryMessage: names, owners and purposes are whatever somebody wrote into etcd.
func TestHostileNamesAreHarmlessInEveryMessage(t *testing.T) {
	t.Parallel()
	r := newReceivers(t)
	const evil = "<!channel> <@U1> <http://e|ok> </p><script>x</script>\r\nBcc: a@b\x1b[31m\u202e\u200f\u2066\u2028" +
		"{{ .Status }} & *b* `c` \" ' \\ %0a "
	for owner, team := range map[string]string{"payments": "payments", "search-" + evil: "", "chat": "",
		"data": "data"} {
		h := holdOf(owner+evil+strings.Repeat("y", 400), owner+evil, team)
		h.purpose = strings.Repeat(evil, 50)
		h.host = evil
		post(t, r.am, h.overdue(r.now.Add(-3*time.Hour)))
		if owner != "chat" && owner != "data" {
			post(t, r.am, h.expired(r.now.Add(-2*time.Hour)))
		}
	}
	for _, to := range []string{"/slack#payments", "/slack#locks", "/pagerduty", "/opsgenie/v2/alerts",
		"payments-on-call@example.org"} {
		m := r.wants(to, "channel")
		text := m.readable(t)
		if strings.ContainsFunc(text, func(c rune) bool { return c != '\n' && !unicode.IsGraphic(c) }) {
			t.Errorf("%s is sent control characters: %q", to, text)
		}
		if strings.Contains(text, "\nBcc") || !strings.Contains(text, "{{ .Status }}") {
			t.Errorf("%s is sent\n%s", to, text)
		}
		if !strings.Contains(text, "\nPage: https://locks.example.org/") || len(text) > 20_000 {
			t.Errorf("the message to %s has no link any more, or %d bytes:\n%s", to, len(text), text)
		}
		if strings.HasPrefix(to, "/slack") && strings.ContainsAny(text, "<>") {
			t.Errorf("%s is sent markup:\n%s", to, text)
		}
	}
	checkHarmless(t, r.wants("/webhook", "channel"))
	_, _, html := r.wants("payments-on-call@example.org", "channel").parts(t)
	if strings.Contains(html, "<script") || strings.Contains(html, "<!c") || !strings.Contains(html, "&lt;script") {
		t.Errorf("a mail has the HTML\n%s", html)
	}
}
