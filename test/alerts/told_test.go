//go:build alerts

package alerts

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/alertpush"
	"github.com/clustermutex/unlocker/internal/diagnosis/deadlock"
	"github.com/clustermutex/unlocker/internal/diagnosis/unclaimed"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

var updatePage = flag.Bool("update", false, "write the messages into docs/howto/receivers.md and testdata")

// push pushes these locks to the Alertmanager as an unlocker does, every second, until it is killed. Nobody holds them.
func (r *receivers) push(waiting map[string]int, locks ...*metadata.Record) *pushed {
	r.Helper()
	p := &pushed{}
	p.locks.Store(&locks)
	began := time.Now()
	pusher := alertpush.New(alertpush.Config{
		URLs: []string{r.am}, Resend: time.Second, Attributes: map[string]string{"team": "team"},
		Labels:    map[string]string{"cluster": "eu"},
		Dashboard: "https://locks.example.org/", Policy: staleness.DefaultPolicy(), Removes: true,
		Locks:   func() []*metadata.Record { return *p.locks.Load() },
		Changed: func() <-chan struct{} { return nil },
		Clock:   func() time.Duration { return time.Since(began) },
		Waiters: func(queue string) int { return waiting[queue] },
		Backtrace: func(context.Context, string, string) (string, error) {
			return "billing/run.go:88 in main.run", nil
		},
		Excluded:  func(string) bool { return false },
		Deadlocks: func() []deadlock.Cycle { return nil },
		Unclaimed: func() ([]unclaimed.Lock, time.Duration) { return nil, 0 },
		Client:    func() *http.Client { return http.DefaultClient }, Log: zerolog.Nop(),
	})
	p.Pusher = pusher
	task := proctest.Go(r.T, pusher.Run)
	p.kill = func() { task.Stop(r.T) }
	return p
}

// pushed is what pushes, and the locks that are held now.
type pushed struct {
	*alertpush.Pusher
	kill  func()
	locks atomic.Pointer[[]*metadata.Record]
}

// fixed is when the messages on the page were sent, as far as their readers know.
var fixed = time.Date(2026, 3, 14, 3, 10, 0, 0, time.UTC)

// late is a lock of a team whose alert began so long ago.
func (r *receivers) late(name, owner, team string, ago time.Duration) *metadata.Record {
	alert := r.now.Add(-ago)
	return &metadata.Record{
		Name: name, UUID: "0b2d1c1e-6a8e-4f0e-9d55-3a5f6f2a7b11", Token: 7,
		Holder:     metadata.Holder{Owner: owner, Hostname: "worker-3", Purpose: "nightly invoices"},
		Attributes: map[string]any{"team": team},
		LockedAt:   alert.Add(-time.Hour), AlertAt: alert, AutoUnlockAt: alert.Add(time.Hour),
	}
}

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
		`(?m)^Over: .*$`:                "Over: 2026-03-14 03:25:00Z", // when the test ended it
		`(?m) +$`:                       "",
	} {
		text = regexp.MustCompile(pattern).ReplaceAllString(text, shown)
	}
	return strings.TrimRight(text, "\n") + "\n"
}

// shows expects a message on the page of the receivers or in the file of all others, or writes it there.
func (r *receivers) shows(name string, m message) {
	r.Helper()
	r.showsText(name, transcript(r.now, m.readable(r.T)))
}

func (r *receivers) showsText(name, got string) {
	r.Helper()
	begin := "<!-- message: " + name + " -->\n```text\n"
	for _, page := range []string{"docs/howto/receivers.md", "test/alerts/testdata/messages.txt"} {
		before, rest, found := strings.Cut(read(r.T, page), begin)
		shown, after, ended := strings.Cut(rest, "```\n")
		switch {
		case !found || !ended:
			continue
		case *updatePage:
			proctest.Must(r, os.WriteFile(top+page, []byte(before+begin+got+"```\n"+after), 0o644))
		case got != shown:
			r.Errorf("%s shows for %s\n%s\nit is\n%s", page, name, shown, got)
		}
		return
	}
	r.Fatalf("no page has a place for the message %s", name)
}

// TestReceiverMessagesMatchTheDocumentation sends alerts as an unlocker pushes them through Alertmanager, with the
// shipped configuration, to receivers of every kind.
func TestReceiverMessagesMatchTheDocumentation(t *testing.T) {
	t.Parallel()
	r := newReceivers(t)

	var locks []*metadata.Record
	for i := range 50 { // each of another owner
		locks = append(locks, r.late(fmt.Sprintf("billing/invoice/%02d", i), fmt.Sprintf("service-%02d", i), "",
			time.Duration(i*37%50+1)*time.Minute))
	}
	waiting := map[string]int{"payments/settle": 3, "billing/invoice/17": 12, "search/reindex": 1}
	settle := r.late("payments/settle", "payments-settler", "payments", 10*time.Minute)
	settle.Asked = &metadata.Request{By: "ann", At: metadata.Time{Time: r.now.Add(-5 * time.Minute)},
		Reason: "the deploy waits"}
	one := r.push(waiting, append(locks, settle,
		r.late("search/reindex", "search-indexer", "", 2*time.Hour), // an hour past its deadline, too
		r.late("data/import", "importer", "data", 20*time.Minute))...)

	r.shows("slack", r.wants("/slack#payments", "Lock payments/settle is held longer"))
	r.shows("mail", r.wants("payments-on-call@example.org", "Lock payments/settle is held longer"))
	r.shows("slack of many", r.wants("/slack#locks", "50 locks are held longer"))
	r.shows("pagerduty", r.wants("/pagerduty", "search/reindex is past its deadline"))
	r.shows("opsgenie", r.wants("/opsgenie/v2/alerts", "search/reindex is past its deadline"))
	r.shows("webhook", r.wants("/webhook", "data/import"))
	proctest.Eventually(t, "the first deadline is not told beside the second",
		func() error { return inhibited(r.am, "UnlockerLockAlerting", "search/reindex") })

	one.locks.Store(new([]*metadata.Record))
	r.shows("slack resolved", r.wants("/slack#payments", "Resolved: Lock payments/settle"))
	r.wants("payments-on-call@example.org", "Resolved: Lock payments/settle")
	r.wants("/slack#locks", "Resolved: ")
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
	one := r.push(nil)
	for owner, to := range map[string]string{"payments-settler": "payments", "search-indexer": "", "importer": "data",
		"reports": ""} {
		one.Ended(nil, &metadata.Ending{Lock: owner + "/job",
			Holder:     metadata.Holder{Owner: owner, Hostname: "worker-3", Purpose: "nightly"},
			Attributes: map[string]any{"team": to}, Ended: metadata.EndedAutoUnlocked,
			EndedAt: metadata.Time{Time: r.now.Add(5*time.Second - 15*time.Minute)}})
	}
	r.shows("slack of an event", r.wants("/slack#locks", "Lock reports/job was auto-unlocked."))
	r.wants("/slack#payments", "was auto-unlocked")
	r.wants("payments-on-call@example.org", "was auto-unlocked")
	r.wants("/opsgenie/v2/alerts", "was auto-unlocked")
	r.wants("/webhook", `"status": "resolved"`) // a program may want to know
	proctest.Eventually(t, "Alertmanager forgets them", func() error { return quiet(r.am, "UnlockerLockAutoUnlocked") })
	one.kill()
	later := r.push(nil, r.late("next", "reports", "", time.Minute),
		r.late("next/payments", "payments-settler", "payments", time.Minute),
		r.late("next/search", "search-indexer", "", time.Minute))
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
	later.kill() // nobody tells Alertmanager any more, and it forgets: no lock is well because of that
	r.shows("slack unheard", r.wants("/slack#locks", "Unknown: Lock next is held longer"))
	r.wants("payments-on-call@example.org", "Unknown: Lock next/payments is held longer")
	for _, to := range []string{"/slack#locks", "/slack#payments"} {
		for _, m := range r.all(to) {
			if strings.Contains(m.readable(t), "Resolved") {
				t.Errorf("%s is told %s", to, m.body)
			}
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
	var locks []*metadata.Record
	for owner, ago := range map[string]time.Duration{"payments": 3 * time.Hour, "search-" + evil: 3 * time.Hour,
		"chat": time.Minute, "data": time.Minute} {
		lock := r.late(owner+evil+strings.Repeat("y", 400), owner+evil, owner, ago)
		lock.Purpose = strings.Repeat(evil, 50)
		lock.Hostname = evil
		locks = append(locks, lock)
	}
	r.push(nil, locks...)
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
