//go:build alerts

package alerts

import (
	"bufio"
	"bytes"
	"encoding/json"
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
	"slices"
	"strings"
	"sync"
	"testing"
	"text/template"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// receivers record what an Alertmanager of their own sends to Slack, PagerDuty, Opsgenie, a webhook and a mail server.
type receivers struct {
	*testing.T
	http *httptest.Server
	smtp net.Listener
	am   string    // where the Alertmanager is
	now  time.Time // when the test began

	mu   sync.Mutex
	told []message
}

// message is one of them, as it came over the wire.
type message struct {
	to   string // /slack#channel, /pagerduty, /opsgenie/v2/alerts, /webhook, or the recipient of a mail
	body string
}

// newReceivers runs an Alertmanager with the shipped configuration, perhaps changed.
func newReceivers(t *testing.T, change ...func(config string) string) *receivers {
	t.Helper()
	r := &receivers{T: t, now: time.Now().UTC().Truncate(time.Second)}
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
	r.am = alertmanager(t, r.shipped(change...), "--web.external-url=https://alerts.example.org",
		"--web.route-prefix=/")
	proctest.Answers(t, r.am+"/-/ready", http.StatusOK)
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
			c := textproto.NewConn(conn)
			err := c.PrintfLine("220 localhost")
			for to := ""; err == nil; {
				to, err = r.command(c, to)
			}
		}()
	}
}

// command answers one command of a mail client, which has said whom its mail is to.
func (r *receivers) command(c *textproto.Conn, to string) (now string, err error) {
	line, err := c.ReadLine()
	if err != nil {
		return "", err
	}
	switch verb, rest, _ := strings.Cut(line, " "); strings.ToUpper(verb) {
	case "RCPT":
		to = strings.Trim(strings.TrimPrefix(rest, "TO:"), "<>")
	case "DATA":
		if err := c.PrintfLine("354 go ahead"); err != nil {
			return "", err
		}
		body, err := c.ReadDotBytes()
		if err != nil {
			return "", err
		}
		r.add(message{to, string(body)})
	}
	return to, c.PrintfLine("250 ok")
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

// form is how a receiver shows a message, in the order of a page.
func (m message) form() string {
	switch {
	case strings.HasPrefix(m.to, "/slack"):
		return `channel: {{.channel}}
{{range .attachments}}color: {{.color}}
title: {{.title}}
title_link: {{.title_link}}

{{.text}}{{end}}`
	case m.to == "/pagerduty":
		return `event_action: {{.event_action}}
{{with .payload}}summary: {{.summary}}
severity: {{.severity}}
class: {{.class}}
component: {{.component}}
group: {{.group}}
{{end}}{{range .links}}link: {{.text}} {{.href}}
{{end}}
{{with .payload.custom_details}}{{.firing}}{{.resolved}}{{end}}`
	case strings.HasPrefix(m.to, "/opsgenie"):
		return `{{if .message}}message: {{.message}}
priority: {{.priority}}
entity: {{.entity}}
tags:{{range .tags}} {{.}}{{end}}
responders:{{range .responders}} {{.type}} {{.name}}{{end}}

{{.description}}{{else}}note: {{.note}}{{end}}`
	}
	return ""
}

// readable is a message as its receiver understands it.
func (m message) readable(t *testing.T) string {
	t.Helper()
	var text bytes.Buffer
	var content map[string]any
	form := m.form()
	switch {
	case form != "":
		m.decode(t, &content)
		if err := template.Must(template.New("").Parse(form)).Execute(&text, content); err != nil {
			t.Fatalf("%s is sent %s: %v", m.to, m.body, err)
		}
		if content["attachments"] != nil && strings.Count(m.body, `"mrkdwn_in":["pretext"]`) != 1 {
			t.Errorf("Slack is sent %s", m.body)
		}
		return text.String()
	case m.to == "/webhook":
		if err := json.Indent(&text, []byte(m.body), "", "  "); err != nil {
			t.Fatalf("the webhook is sent %v: %s", err, m.body)
		}
		return text.String()
	}
	subject, plain, _ := m.parts(t)
	return "Subject: " + subject + "\nTo: " + m.to + "\n\n" + plain
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
	proctest.Must(t, err)
	reader := multipart.NewReader(letter.Body, params["boundary"])
	for {
		part, err := reader.NextRawPart()
		if err == io.EOF {
			return subject, text, html
		}
		proctest.Must(t, err)
		body, err := io.ReadAll(quotedprintable.NewReader(part))
		proctest.Must(t, err)
		into := &html
		if strings.HasPrefix(part.Header.Get("Content-Type"), "text/plain") {
			into = &text
		}
		*into = strings.ReplaceAll(string(body), "\r\n", "\n")
	}
}

// shipped is the example for Alertmanager with its templates. Different are the addresses, the secrets, TLS to the mail
// server, and that nothing waits.
func (r *receivers) shipped(change ...func(config string) string) (path string) {
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
	for _, c := range change {
		text = c(text)
	}
	for name, text := range map[string]string{
		"alertmanager.yml": text, "unlocker.tmpl": read(r.T, "deploy/alertmanager/unlocker.tmpl"),
		"smtp": "secret", "slack": r.http.URL + "/slack", "pagerduty": "key", "opsgenie": "key",
	} {
		proctest.Must(r, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	path = filepath.Join(dir, "alertmanager.yml")
	output(r.T, nil, tool(r.T, "amtool"), "check-config", path)
	return path
}

// alertmanager runs one with the configuration in a file.
func alertmanager(t *testing.T, config string, more ...string) (url string) {
	t.Helper()
	addr := proctest.FreeAddr(t)
	proctest.Start(t, proctest.Command(t, tool(t, "prometheus-alertmanager", "alertmanager"), append([]string{
		"--config.file=" + config, "--storage.path=" + t.TempDir(), "--web.listen-address=" + addr,
		"--cluster.listen-address=", "--log.level=warn"}, more...)...))
	return "http://" + addr
}
