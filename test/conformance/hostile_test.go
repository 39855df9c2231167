//go:build conformance

package conformance

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

var hostileChecks = []check{
	{name: "hostile values", rule: "protocol.md#the-record", short: true,
		wants: "any name and text is written as it is, and shown by page and mutexctl without harm",
		alone: hostileValues},
	{name: "bad input", rule: "protocol.md#lock-names", short: true,
		wants: "input that readers would report as a problem is refused, and nothing is written", alone: badInput},
}

func evil() []string {
	return []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `../../etc/passwd`, `.queue`, `%2F%00`, `a\b"c'`,
		"\u202Egnp.exe", "a\u2028b", "emoji 👩‍🚀 ✂️", "é != e\u0301", "{{7*7}} ${7*7}", "; rm -rf / #",
		" blanks ", "-o=json",
		strings.Repeat("ž", 128), "null", "1e999", "a%zz?b=c#d",
	}
}

type texts struct{ name, purpose, note, progress string }

// hostileTexts puts each text in each place. The short set puts each text in one place per client, in a different one
// for the next client.
func hostileTexts(c *client) (all []texts) {
	evil := evil()
	if !testing.Short() {
		for _, text := range evil {
			all = append(all, texts{name: text, purpose: text, note: text, progress: text})
		}
		return all
	}
	const places = 4
	locks := (len(evil) + places - 1) / places
	for i := range locks {
		at := func(place int) string { return evil[(i+(c.place+place)%places*locks)%len(evil)] }
		all = append(all, texts{name: at(0), purpose: at(1), note: at(2), progress: at(3)})
	}
	return all
}

func hostileValues(t *testing.T, s *scene, c *client) {
	d := s.open(c)
	addr, ops := proctest.FreeAddr(t), proctest.FreeAddr(t)
	dash := proctest.Start(t, programs.Command(t, "mutexdash", "--etcd.endpoints="+s.target[0],
		"--locks.prefix="+s.layout.Prefix(), "--web.listen-address="+addr, "--web.ops-address="+ops,
		"--web.shutdown-delay=0s"))
	proctest.Answers(t, "http://"+ops+"/readyz", 200)
	all := hostileTexts(c)
	var locks []*lock
	var names []string
	for _, x := range all {
		l := d.acquire(x.name, want{try: true, purpose: x.purpose, attributes: map[string]any{"note": x.note}})
		l.mustAlive(x.progress)
		r := s.record(x.name)
		if len(r.Problems) > 0 || r.Purpose != x.purpose || r.Attributes["note"] != x.note ||
			strings.TrimSpace(progress(r)) != strings.TrimSpace(x.progress) {
			t.Errorf("%+v was written as %+v", x, r.Record)
		}
		s.isShown(x.name, l.uuid)
		locks = append(locks, l)
		names = append(names, x.name)
	}
	seesAll(t, addr, names)
	for i, l := range locks {
		if a := d.try(l.name); a.Error != "held" || a.Holder == nil || a.Holder.Purpose != all[i].purpose {
			t.Errorf("the holder of %q is described as %s", l.name, a.line)
		}
		l.mustRelease()
		s.free(l.name)
	}
	if !dash.Running() {
		t.Error("the dashboard ended")
	}
}

func (s *scene) isShown(name, uuid string) {
	for _, format := range []string{"table", "json"} {
		shown := s.mutexctl("show", "--output="+format, "--", name)
		if !strings.Contains(shown, uuid) || !utf8.ValidString(shown) || strings.ContainsFunc(shown, obeyed) {
			s.t.Errorf("mutexctl show -o %s %q shows another lock, or what a terminal obeys: %q", format, name, shown)
		}
	}
}

func obeyed(r rune) bool {
	return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// seesAll expects the dashboard to have all locks, and pages without injected markup.
func seesAll(t *testing.T, addr string, names []string) {
	eventually(t, "the locks in the API", func() error {
		body := proctest.Answers(t, "http://"+addr+"/api/v1/locks?limit=1000", 200)
		var answer struct {
			Data []struct{ Name string } `json:"data"`
		}
		if err := json.Unmarshal([]byte(body), &answer); err != nil {
			return err
		}
		for _, name := range names {
			if !slices.ContainsFunc(answer.Data, func(l struct{ Name string }) bool { return l.Name == name }) {
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

func badInput(t *testing.T, s *scene, c *client) {
	d := s.open(c)
	many := map[string]any{}
	for i := range lockrecord.MaxAttributes + 1 {
		many[fmt.Sprintf("a%d", i)] = i
	}
	for about, change := range map[string]request{
		"a purpose of more than 1 KiB":      {"purpose": strings.Repeat("p", metadata.MaxTextBytes+1)},
		"65 attributes":                     {"attributes": many},
		"an attribute that is no name":      {"attributes": map[string]any{"Not A Name": 1}},
		"an attribute that is a field":      {"attributes": map[string]any{"uuid": "x"}},
		"an attribute that is a member":     {"attributes": map[string]any{"owner": "x"}},
		"an attribute that is a list":       {"attributes": map[string]any{"list": []int{1}}},
		"an alert after the auto-unlock":    {"alert_after": 20.0, "auto_unlock_after": 10.0},
		"a time until auto-unlock below 0":  {"auto_unlock_after": -1.0},
		"a record of more than 64 KiB":      {"attributes": wide()},
		"a name of more than 256 bytes":     {"name": strings.Repeat("n", metadata.MaxNameBytes+1)},
		"a name with a line feed":           {"name": "a\nb"},
		"a name that is empty":              {"name": ""},
		"a text that has more than 1 KiB":   {"attributes": map[string]any{"note": strings.Repeat("n", 1025)}},
		"a purpose with half a line of NUL": {"purpose": strings.Repeat("\x00", 2000)},
	} {
		if a := d.do(want{try: true, more: change}.request("bad input")); a.Error != "refused" || a.Message == "" {
			t.Errorf("%s: %.300s, want refused and a message", about, a.line)
		}
	}
	if left := s.keys(s.layout.Prefix()); len(left) > 0 {
		t.Errorf("what was refused left %q", left)
	}
}

// wide returns attributes that are allowed individually.
func wide() map[string]any {
	all := map[string]any{}
	for i := range lockrecord.MaxAttributes {
		all[fmt.Sprintf("a%d", i)] = strings.Repeat("é", metadata.MaxTextBytes/2)
	}
	return all
}
