//go:build alerts

package alerts

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"net/textproto"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/alertpush"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

var updatePage = flag.Bool("update", false, "write the messages into docs/howto/receivers.md and testdata")

// receivers record what Alertmanager sends to Slack, PagerDuty, Opsgenie, a webhook and a mail server.
type receivers struct {
	*testing.T
	http *httptest.Server
	smtp net.Listener

	change func(config string) string // of the shipped configuration; nil: it stays as it is

	mu   sync.Mutex
	told []message
}

// message is one of them, as it came over the wire.
type message struct {
	to   string // /slack#channel, /pagerduty, /opsgenie/v2/alerts, /webhook, or the recipient of a mail
	body string
}

func newReceivers(t *testing.T) *receivers {
	r := &receivers{T: t}
	r.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}
		to := req.URL.Path
		if to == "/slack" {
			var m struct{ Channel string }
			if err := json.Unmarshal(body, &m); err != nil {
				t.Errorf("Slack is sent something unreadable: %v", err)
			}
			to += m.Channel
		}
		r.add(message{to, string(body)})
		w.WriteHeader(http.StatusAccepted) // which PagerDuty and Opsgenie answer with
	}))
	t.Cleanup(r.http.Close)
	var err error
	if r.smtp, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.smtp.Close() })
	go r.mails()
	return r
}

func (r *receivers) add(m message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, m)
}

// mails is a mail server that takes everything.
func (r *receivers) mails() {
	for {
		conn, err := r.smtp.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer conn.Close()
			r.mail(textproto.NewConn(conn))
		}()
	}
}

func (r *receivers) mail(c *textproto.Conn) {
	say := func(line string) { _ = c.PrintfLine("%s", line) }
	say("220 localhost")
	to := ""
	for {
		line, err := c.ReadLine()
		if err != nil {
			return
		}
		switch verb, rest, _ := strings.Cut(line, " "); strings.ToUpper(verb) {
		case "RCPT":
			to = strings.Trim(strings.TrimPrefix(rest, "TO:"), "<>")
			say("250 ok")
		case "DATA":
			say("354 go ahead")
			body, err := c.ReadDotBytes()
			if err != nil {
				return
			}
			r.add(message{to, string(body)})
			say("250 ok")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// wants waits for a message to this receiver that contains the text.
func (r *receivers) wants(to, text string) (found message) {
	r.Helper()
	proctest.Eventually(r.T, fmt.Sprintf("%s is told %q", to, text), func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		var others []string
		for _, m := range r.told {
			if m.to == to && strings.Contains(m.readable(r.T), text) {
				found = m
				return nil
			}
			others = append(others, fmt.Sprintf("%s: %.3000s", m.to, m.body))
		}
		return fmt.Errorf("told were\n%s", strings.Join(others, "\n"))
	})
	return found
}

// all returns what this receiver was told.
func (r *receivers) all(to string) (all []message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.told {
		if m.to == to {
			all = append(all, m)
		}
	}
	return all
}

// readable is a message as its receiver understands it, in the order of a page.
func (m message) readable(t *testing.T) string {
	t.Helper()
	switch {
	case strings.HasPrefix(m.to, "/slack"):
		var s struct {
			Channel     string
			Attachments []struct {
				Title, Text, Color string
				Link               string   `json:"title_link"`
				MrkdwnIn           []string `json:"mrkdwn_in"`
			}
		}
		m.decode(t, &s)
		if len(s.Attachments) != 1 || fmt.Sprint(s.Attachments[0].MrkdwnIn) != "[pretext]" {
			t.Fatalf("Slack is sent %s", m.body)
		}
		a := s.Attachments[0]
		return fmt.Sprintf("channel: %s\ncolor: %s\ntitle: %s\ntitle_link: %s\n\n%s", s.Channel, a.Color, a.Title,
			a.Link, a.Text)
	case m.to == "/pagerduty":
		var p struct {
			Action  string `json:"event_action"`
			Payload struct {
				Summary, Severity, Component, Group, Class string
				Details                                    map[string]string `json:"custom_details"`
			}
			Links []struct{ Href, Text string }
		}
		m.decode(t, &p)
		text := fmt.Sprintf("event_action: %s\nsummary: %s\nseverity: %s\nclass: %s\ncomponent: %s\ngroup: %s\n",
			p.Action, p.Payload.Summary, p.Payload.Severity, p.Payload.Class, p.Payload.Component, p.Payload.Group)
		for _, l := range p.Links {
			text += fmt.Sprintf("link: %s %s\n", l.Text, l.Href)
		}
		return text + "\n" + p.Payload.Details["firing"] + p.Payload.Details["resolved"]
	case strings.HasPrefix(m.to, "/opsgenie"):
		var o struct {
			Message, Description, Priority, Entity, Note string
			Tags                                         []string
			Responders                                   []struct{ Type, Name string }
		}
		m.decode(t, &o)
		if o.Message == "" {
			return "note: " + o.Note
		}
		return fmt.Sprintf("message: %s\npriority: %s\nentity: %s\ntags: %s\nresponders: %s\n\n%s", o.Message,
			o.Priority, o.Entity, strings.Join(o.Tags, ", "), o.Responders, o.Description)
	case m.to == "/webhook":
		var indented bytes.Buffer
		if err := json.Indent(&indented, []byte(m.body), "", "  "); err != nil {
			t.Fatalf("the webhook is sent %v: %s", err, m.body)
		}
		return indented.String()
	}
	subject, text, _ := m.parts(t)
	return "Subject: " + subject + "\nTo: " + m.to + "\n\n" + text
}

func (m message) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(m.body), into); err != nil {
		t.Fatalf("%s is sent something unreadable: %v\n%s", m.to, err, m.body)
	}
}

// parts are the subject and both bodies of a mail.
func (m message) parts(t *testing.T) (subject, text, html string) {
	t.Helper()
	letter, err := mail.ReadMessage(bufio.NewReader(strings.NewReader(m.body)))
	if err != nil {
		t.Fatalf("a mail cannot be read: %v\n%s", err, m.body)
	}
	if subject, err = new(mime.WordDecoder).DecodeHeader(letter.Header.Get("Subject")); err != nil {
		t.Fatal(err)
	}
	for name := range letter.Header {
		if !slices.Contains([]string{"Subject", "To", "From", "Date", "Message-Id", "Mime-Version", "Content-Type"},
			name) {
			t.Errorf("a mail has the header %s", name)
		}
	}
	_, params, err := mime.ParseMediaType(letter.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	reader := multipart.NewReader(letter.Body, params["boundary"])
	for {
		part, err := reader.NextRawPart()
		if err == io.EOF {
			return subject, text, html
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(quotedprintable.NewReader(part))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(part.Header.Get("Content-Type"), "text/plain") {
			text = strings.ReplaceAll(string(body), "\r\n", "\n")
		} else {
			html = strings.ReplaceAll(string(body), "\r\n", "\n")
		}
	}
}

// shipped is the example for Alertmanager with its templates. Different are the addresses, the secrets, TLS to the mail
// server, and that nothing waits.
func (r *receivers) shipped() (path string) {
	r.Helper()
	dir := r.TempDir()
	text := read(r.T, "deploy/alertmanager/alertmanager.example.yml")
	for shipped, here := range map[string]string{
		"smtp.example.org:587":                    r.smtp.Addr().String(),
		"smtp_require_tls: true":                  "smtp_require_tls: false",
		"https://events.pagerduty.com/v2/enqueue": r.http.URL + "/pagerduty",
		"https://api.opsgenie.com/":               r.http.URL + "/opsgenie/",
		"https://hooks.example.org/locks":         r.http.URL + "/webhook",
		"/etc/alertmanager/secrets":               dir,
		"group_wait: 15s":                         "group_wait: 1s",
		"group_interval: 5m":                      "group_interval: 1s",
	} {
		if strings.Count(text, shipped) == 0 {
			r.Fatalf("the example does not have %s", shipped)
		}
		text = strings.ReplaceAll(text, shipped, here)
	}
	if r.change != nil {
		text = r.change(text)
	}
	for name, text := range map[string]string{
		"alertmanager.yml": text, "unlocker.tmpl": read(r.T, "deploy/alertmanager/unlocker.tmpl"),
		"smtp": "secret", "slack": r.http.URL + "/slack", "pagerduty": "key", "opsgenie": "key",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			r.Fatal(err)
		}
	}
	path = filepath.Join(dir, "alertmanager.yml")
	output(r.T, nil, tool(r.T, "amtool"), "check-config", path)
	return path
}

// alertmanager runs the shipped configuration.
func (r *receivers) alertmanager() (url string) {
	r.Helper()
	addr := proctest.FreeAddr(r.T)
	proctest.Start(r.T, proctest.Command(r.T, tool(r.T, "prometheus-alertmanager", "alertmanager"),
		"--config.file="+r.shipped(), "--storage.path="+r.TempDir(), "--web.listen-address="+addr,
		"--web.external-url=https://alerts.example.org", "--web.route-prefix=/", "--cluster.listen-address=",
		"--log.level=warn"))
	proctest.Eventually(r.T, "Alertmanager runs", func() error {
		_, err := get("http://" + addr + "/-/ready")
		return err
	})
	return "http://" + addr
}

// pushed is an unlocker's pusher over records that nobody holds.
type pushed struct {
	*alertpush.Pusher
	die     func() // as an unlocker that is killed
	mu      sync.Mutex
	locks   []*metadata.Record
	changed chan struct{}
	began   time.Time
	waiting map[string]int
}

// push pushes these locks to an Alertmanager until the test ends.
func push(t *testing.T, am string, waiting map[string]int, resend time.Duration, locks ...*metadata.Record) *pushed {
	t.Helper()
	p := &pushed{locks: locks, changed: make(chan struct{}), began: time.Now(), waiting: waiting}
	pusher, err := alertpush.New(alertpush.Config{
		URLs: []string{am}, Resend: resend, Attributes: map[string]string{"team": "team"},
		Labels:    map[string]string{"cluster": "eu"},
		Dashboard: "https://locks.example.org/", Policy: staleness.DefaultPolicy(), Removes: true,
		Locks: func() []*metadata.Record {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.locks
		},
		Changed: func() <-chan struct{} {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.changed
		},
		Clock:   func() time.Duration { return time.Since(p.began) },
		Waiters: func(queue string) int { return p.waiting[queue] },
		Backtrace: func(context.Context, string, string) (string, error) {
			return "billing/run.go:88 in main.run", nil
		},
		Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Pusher = pusher
	task := proctest.Go(t, pusher.Run)
	p.die = func() { task.Stop(t) }
	return p
}

// release leaves no lock held.
func (p *pushed) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.locks = nil
	close(p.changed)
	p.changed = make(chan struct{})
}

// fixed is when the messages on the page were sent, as far as their readers know.
var fixed = time.Date(2026, 3, 14, 3, 10, 0, 0, time.UTC)

// late is a lock whose alert began so long ago.
func late(now time.Time, name, owner string, ago time.Duration, change ...func(*metadata.Record)) *metadata.Record {
	alert := now.Add(-ago)
	r := &metadata.Record{
		Name: name, UUID: "0b2d1c1e-6a8e-4f0e-9d55-3a5f6f2a7b11", Token: 7,
		Holder:   metadata.Holder{Owner: owner, Hostname: "worker-3", Purpose: "nightly invoices"},
		LockedAt: alert.Add(-time.Hour), AlertAt: alert, AutoUnlockAt: alert.Add(time.Hour),
	}
	for _, c := range change {
		c(r)
	}
	return r
}

func team(name string) func(*metadata.Record) {
	return func(r *metadata.Record) { r.Attributes = map[string]any{"team": name} }
}

// transcript is a message with the times of the page.
func transcript(now time.Time, text string) string {
	shift := func(layout string) func(string) string {
		return func(found string) string {
			at, err := time.Parse(layout, found)
			if err != nil || at.Year() < 1000 && layout != "15:04:05Z" {
				return found
			}
			if layout == "15:04:05Z" {
				day := now.Truncate(24 * time.Hour)
				at = day.Add(at.Sub(at.Truncate(24 * time.Hour)))
			}
			return at.Add(fixed.Sub(now)).Format(layout)
		}
	}
	text = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`).ReplaceAllStringFunc(text, shift(time.RFC3339))
	text = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ`).ReplaceAllStringFunc(text,
		shift("2006-01-02 15:04:05Z"))
	text = regexp.MustCompile(`since \d\d:\d\d:\d\dZ`).ReplaceAllStringFunc(text, func(found string) string {
		return "since " + shift("15:04:05Z")(strings.TrimPrefix(found, "since "))
	})
	text = regexp.MustCompile(`"fingerprint": "[0-9a-f]{16}"`).ReplaceAllString(text,
		`"fingerprint": "60e76c9d2ffd0aeb"`)
	// When it ended is when the test ended it.
	text = regexp.MustCompile(`(?m)^Over: .*$`).ReplaceAllString(text, "Over: 2026-03-14 03:25:00Z")
	var lines []string
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.Join(lines, "\n") + "\n"
}

// shows expects a message on the page of the receivers or in the file of all others, or writes it there.
func (r *receivers) shows(now time.Time, name string, m message) {
	r.Helper()
	r.showsText(name, transcript(now, m.readable(r.T)))
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
			if err := os.WriteFile(top+page, []byte(before+begin+got+"```\n"+after), 0o644); err != nil {
				r.Fatal(err)
			}
		case got != shown:
			r.Errorf("%s shows for %s\n%s\nit is\n%s", page, name, shown, got)
		}
		return
	}
	r.Fatalf("no page has a place for the message %s", name)
}

// TestEveryReceiverIsToldWhatThePageShows sends alerts as an unlocker pushes them through Alertmanager, with the
// shipped configuration, to receivers of every kind.
func TestEveryReceiverIsToldWhatThePageShows(t *testing.T) {
	t.Parallel()
	r := newReceivers(t)
	am := r.alertmanager()
	now := time.Now().UTC().Truncate(time.Second)

	var locks []*metadata.Record
	for i := range 50 { // each of another owner
		locks = append(locks, late(now, fmt.Sprintf("billing/invoice/%02d", i), fmt.Sprintf("service-%02d", i),
			time.Duration(i*37%50+1)*time.Minute))
	}
	waiting := map[string]int{"payments/settle": 3, "billing/invoice/17": 12, "search/reindex": 1}
	one := push(t, am, waiting, time.Minute, append(locks,
		late(now, "payments/settle", "payments-settler", 10*time.Minute, team("payments"),
			func(r *metadata.Record) {
				r.Asked = &metadata.Request{By: "ann", At: metadata.Time{Time: now.Add(-5 * time.Minute)},
					Reason: "the deploy waits"}
			}),
		late(now, "search/reindex", "search-indexer", 2*time.Hour), // an hour past its deadline, too
		late(now, "data/import", "importer", 20*time.Minute, team("data")))...)

	r.shows(now, "slack", r.wants("/slack#payments", "Lock payments/settle is held longer"))
	r.shows(now, "mail", r.wants("payments-on-call@example.org", "Lock payments/settle is held longer"))
	r.shows(now, "slack of many", r.wants("/slack#locks", "50 locks are held longer"))
	r.shows(now, "pagerduty", r.wants("/pagerduty", "search/reindex is past its deadline"))
	r.shows(now, "opsgenie", r.wants("/opsgenie/v2/alerts", "search/reindex is past its deadline"))
	r.shows(now, "webhook", r.wants("/webhook", "data/import"))
	checkWebhook(t, r.wants("/webhook", "data/import"))
	proctest.Eventually(t, "the first deadline is not told beside the second",
		func() error { return inhibited(am, "UnlockerLockAlerting", "search/reindex") })

	one.release()
	r.shows(now, "slack resolved", r.wants("/slack#payments", "Resolved: Lock payments/settle"))
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

// TestWhatHasHappenedIsToldOnce: the alert ends a quarter of an hour later, and there is nothing to say about that.
func TestWhatHasHappenedIsToldOnce(t *testing.T) {
	t.Parallel()
	r := newReceivers(t)
	am := r.alertmanager()
	now := time.Now().UTC().Truncate(time.Second)
	one := push(t, am, nil, time.Second)
	for owner, to := range map[string]string{"payments-settler": "payments", "search-indexer": "", "importer": "data",
		"reports": ""} {
		one.Ended(nil, &metadata.Ending{Lock: owner + "/job",
			Holder:     metadata.Holder{Owner: owner, Hostname: "worker-3", Purpose: "nightly"},
			Attributes: map[string]any{"team": to}, Ended: metadata.EndedAutoUnlocked,
			EndedAt: metadata.Time{Time: now.Add(5*time.Second - 15*time.Minute)}})
	}
	r.shows(now, "slack of an event", r.wants("/slack#locks", "Lock reports/job was auto-unlocked."))
	r.wants("/slack#payments", "was auto-unlocked")
	r.wants("payments-on-call@example.org", "was auto-unlocked")
	r.wants("/opsgenie/v2/alerts", "was auto-unlocked")
	r.wants("/webhook", `"status": "resolved"`) // a program may want to know
	proctest.Eventually(t, "Alertmanager forgets them", func() error { return quiet(am, "UnlockerLockAutoUnlocked") })
	one.die()
	later := push(t, am, nil, time.Second, late(now, "next", "reports", time.Minute),
		late(now, "next/payments", "payments-settler", time.Minute, team("payments")),
		late(now, "next/search", "search-indexer", time.Minute))
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
	later.die() // nobody tells Alertmanager any more, and it forgets: no lock is well because of that
	r.shows(now, "slack unheard", r.wants("/slack#locks", "Unknown: Lock next is held longer"))
	r.wants("payments-on-call@example.org", "Unknown: Lock next/payments is held longer")
	for _, to := range []string{"/slack#locks", "/slack#payments"} {
		for _, m := range r.all(to) {
			if strings.Contains(m.readable(t), "Resolved") {
				t.Errorf("%s is told %s", to, m.body)
			}
		}
	}
}

// checkWebhook expects everything about the alert in what a webhook gets.
func checkWebhook(t *testing.T, m message) {
	t.Helper()
	var told struct {
		Status      string
		GroupLabels map[string]string
		Alerts      []alert
	}
	m.decode(t, &told)
	if len(told.Alerts) != 1 || told.Status != "firing" {
		t.Fatalf("the webhook is told %s", m.body)
	}
	a := told.Alerts[0]
	for name, want := range map[string]string{"alertname": "UnlockerLockAlerting", "lock": "data/import",
		"owner": "importer", "team": "data", "severity": "warning"} {
		if a.Labels[name] != want {
			t.Errorf("the webhook is told %s %q, want %q", name, a.Labels[name], want)
		}
	}
	for _, name := range []string{"summary", "description", "next", "waiters", "host", "purpose", "frame", "dashboard",
		"runbook_url"} {
		if a.Annotations[name] == "" {
			t.Errorf("the webhook is not told the %s", name)
		}
	}
}

// checkHarmless expects every value that a webhook gets to be one short, visible line.
func checkHarmless(t *testing.T, m message) {
	t.Helper()
	var told struct {
		GroupLabels, CommonLabels, CommonAnnotations map[string]string
		Alerts                                       []alert
	}
	m.decode(t, &told)
	if len(told.Alerts) != 1 {
		t.Fatalf("the webhook is told %s", m.body)
	}
	a := told.Alerts[0]
	for _, values := range []map[string]string{told.GroupLabels, told.CommonLabels, told.CommonAnnotations, a.Labels,
		a.Annotations} {
		for name, value := range values {
			if strings.ContainsFunc(value, func(c rune) bool { return !unicode.IsGraphic(c) }) || len(value) > 4096 {
				t.Errorf("the webhook is told the %s %q", name, value)
			}
		}
	}
	if name := a.Labels["lock"]; len(name) > 128 || !strings.HasPrefix(name, "data<!channel>") {
		t.Errorf("the webhook is told of the lock %q", name)
	}
}

// TestHostileNamesAreHarmlessInEveryMessage: names, owners and purposes are whatever somebody wrote into etcd.
func TestHostileNamesAreHarmlessInEveryMessage(t *testing.T) {
	t.Parallel()
	r := newReceivers(t)
	am := r.alertmanager()
	now := time.Now().UTC().Truncate(time.Second)
	const evil = "<!channel> <@U1> <http://e|ok> </p><script>x</script>\r\nBcc: a@b\x1b[31m\u202e\u200f\u2066\u2028" +
		"{{ .Status }} & *b* `c` \" ' \\ %0a "
	var locks []*metadata.Record
	for owner, ago := range map[string]time.Duration{"payments": 3 * time.Hour, "search-" + evil: 3 * time.Hour,
		"chat": time.Minute, "data": time.Minute} {
		locks = append(locks, late(now, owner+evil+strings.Repeat("y", 400), owner+evil, ago, team(owner),
			func(r *metadata.Record) {
				r.Purpose = strings.Repeat(evil, 50)
				r.Hostname = evil
			}))
	}
	push(t, am, nil, time.Minute, locks...)
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
