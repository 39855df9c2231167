//go:build conformance

package conformance

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// hostileChecks are about texts that nobody expects.
func hostileChecks() []check {
	return []check{
		{name: "hostile values", rule: "the-record", short: true,
			wants: "any name and text is written as it is, and shown by page and mutexctl without harm",
			alone: hostileValues},
		{name: "bad input", rule: "lock-names", short: true,
			wants: "input that readers would report as a problem is refused, and nothing is written", alone: badInput},
	}
}

// evil are names and texts that are allowed.
func evil() []string {
	return []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `../../etc/passwd`, `.queue`, `%2F%00`, `a\b"c'`,
		"\u202Egnp.exe", "a\u2028b", "emoji 👩‍🚀 ✂️", "é != e\u0301", "{{7*7}} ${7*7}", "; rm -rf / #",
		" blanks ", "-o=json",
		strings.Repeat("ž", 128), "null", "1e999", "a%zz?b=c#d",
	}
}

func hostileValues(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	d := s.open(c)
	addr, ops := proctest.FreeAddr(t), proctest.FreeAddr(t)
	dash := proctest.Start(t, programs.Command(t, "mutexdash", "--etcd.endpoints="+s.target[0],
		"--locks.prefix="+s.layout.Prefix(), "--web.listen-address="+addr, "--web.ops-address="+ops,
		"--web.shutdown-delay=0s"))
	proctest.Answers(t, "http://"+ops+"/readyz", 200)
	var locks []*lock
	for _, text := range evil() {
		l := d.acquire(text, want{try: true, purpose: text, attributes: map[string]any{"note": text}})
		if a := l.alive(text); a.Error != "" {
			t.Errorf("alive with the progress %q: %s", text, a.line)
		}
		r := s.record(text)
		if len(r.Problems) > 0 || r.Purpose != text || r.Attributes["note"] != text ||
			strings.TrimSpace(progress(r)) != strings.TrimSpace(text) {
			t.Errorf("%q was written as %+v", text, r.Record)
		}
		s.isShown(text, l.uuid)
		locks = append(locks, l)
	}
	seesAll(t, addr, evil())
	for _, l := range locks {
		if a := d.try(l.name); a.Error != "held" || a.Holder == nil || a.Holder.Purpose != l.name {
			t.Errorf("the holder of %q is described as %s", l.name, a.line)
		}
		l.mustRelease()
		s.free(l.name)
	}
	if !dash.Running() {
		t.Error("the dashboard ended")
	}
}

// isShown wants mutexctl to show the lock, without anything that a terminal obeys.
func (s *scene) isShown(name, uuid string) {
	s.t.Helper()
	for _, format := range []string{"table", "json"} {
		r := s.mutexctl("show", "--output="+format, "--", name)
		if r.Code != 0 || !strings.Contains(r.Stdout, uuid) {
			s.t.Errorf("mutexctl show -o %s %q: %+v", format, name, r)
		}
		if !utf8.ValidString(r.Stdout) || strings.ContainsFunc(r.Stdout, obeyed) {
			s.t.Errorf("mutexctl show -o %s %q prints what a terminal obeys: %q", format, name, r.Stdout)
		}
	}
}

func obeyed(r rune) bool {
	return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// seesAll wants the dashboard to have all locks, and pages that run nothing.
func seesAll(t *testing.T, addr string, names []string) {
	t.Helper()
	eventually(t, "the locks in the API", func() error {
		body := proctest.Answers(t, "http://"+addr+"/api/v1/locks?limit=1000", 200)
		var answer struct {
			Data []struct{ Name string } `json:"data"`
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			return err
		}
		shown := map[string]bool{}
		for _, l := range answer.Data {
			shown[l.Name] = true
		}
		for _, name := range names {
			if !shown[name] {
				return fmt.Errorf("it hides %q", name)
			}
		}
		return nil
	})
	paths := []string{"/"}
	for _, name := range names {
		paths = append(paths, "/lock?name="+url.QueryEscape(name))
	}
	for _, path := range paths {
		page := proctest.Answers(t, "http://"+addr+path, 200)
		if strings.Contains(page, "<script>alert") || strings.Contains(page, "<img src=x") {
			t.Errorf("the page %s has a name that is not escaped", path)
		}
	}
}

func badInput(t *testing.T, w *world, c *client) {
	s := w.scene(t)
	d := s.open(c)
	many := map[string]any{}
	for i := range metadata.MaxAttributes + 1 {
		many[fmt.Sprintf("a%d", i)] = i
	}
	type bad map[string]any
	cases := map[string]bad{
		"a purpose of more than 1 KiB":      {"purpose": strings.Repeat("p", metadata.MaxTextBytes+1)},
		"65 attributes":                     {"attributes": many},
		"an attribute that is no name":      {"attributes": map[string]any{"Not A Name": 1}},
		"an attribute that is a field":      {"attributes": map[string]any{"uuid": "x"}},
		"an attribute that is a list":       {"attributes": map[string]any{"list": []int{1}}},
		"an alert after the auto-unlock":    {"alert_after": 20.0, "unlock_after": 10.0},
		"a time until auto-unlock below 0":  {"unlock_after": -1.0},
		"a record of more than 64 KiB":      {"attributes": wide()},
		"a name of more than 256 bytes":     {"name": strings.Repeat("n", metadata.MaxNameBytes+1)},
		"a name with a line feed":           {"name": "a\nb"},
		"a name that is empty":              {"name": ""},
		"a text that has more than 1 KiB":   {"attributes": map[string]any{"note": strings.Repeat("n", 1025)}},
		"a purpose with half a line of NUL": {"purpose": strings.Repeat("\x00", 2000)},
	}
	for about, change := range cases {
		r := want{try: true}.request("bad input")
		for member, value := range change {
			r[member] = value
		}
		if a := d.do(r); a.Error != "refused" || a.Message == "" {
			t.Errorf("%s: %.300s, want refused and a message", about, a.line)
		}
	}
	if left := s.keys(s.layout.Prefix()); len(left) > 0 {
		t.Errorf("what was refused left %q", left)
	}
}

// wide are attributes that are allowed one by one.
func wide() map[string]any {
	all := map[string]any{}
	for i := range metadata.MaxAttributes {
		all[fmt.Sprintf("a%d", i)] = strings.Repeat("é", metadata.MaxTextBytes/2)
	}
	return all
}
