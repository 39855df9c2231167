package dashboard_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/internal/dashboard/app"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// hostile is what people and programs have written into names and values.
func hostile() []string {
	return []string{
		`"><script>alert(1)</script>`, `'><img src=x onerror=alert(1)>`, "javascript:alert(1)",
		"</title><svg onload=alert(1)>", "{{.}}{{template \"x\"}}", "```", "a\x00b", "\x1b[31mred\x1b[2J",
		"line\nbreak\r\n\ttab", "gnp.\u202egpj.exe", "\u2066isolate\u2069", "zero\u200bwidth\ufeff",
		"\u061c\u200e\u200f", "\xff\xfe\xfd", "cut \xe2\x82", "\u2028\u2029", " lead and trail ", "\u00a0\u3000",
		"z\u0301\u0301\u0301\u0301\u0301\u0301\u0301\u0301algo", "\U000e0041tag", strings.Repeat("long/", 2000), "..",
		".", "/", "//", "a/../b", "%2e%2e%2f", "%", "?q=1&name=x#y", "&amp;&lt;", `back\slash`, "-rf", "--",
		"$(id)`id`", "=1+1", "😀👩‍👩‍👧", "ключ", "\ue000private", "\u0085next", "\u200b",
	}
}

// infested is a scene in which each of these is a name and every value.
func infested() *scene {
	s := newScene()
	for i, text := range hostile() {
		unlock := []time.Duration{time.Hour, time.Minute, -time.Hour}[i%3]
		s.add(hold{name: text, owner: text, host: text, purpose: text, held: time.Hour, alert: -time.Minute,
			unlock: unlock, alive: text,
			backtrace: text + "\n" + `File "` + text + `", line 3`, attributes: map[string]string{"attribute": text}})
		s.acknowledge(text, text, text, time.Hour)
		witness := []func(string, time.Duration, ...func(*metadata.Statement)){s.state, s.suspect}[i%2]
		witness(text, time.Duration(i-1)*100*365*24*time.Hour, func(st *metadata.Statement) {
			st.Detail = text
			st.Signal = strings.Repeat(text, 10)
			st.By = text
			st.Reason = text
		})
		s.wait(text, text, time.Minute)
		s.add(hold{name: "x" + text + "#1", owner: text, host: text, held: time.Hour, alert: time.Hour,
			unlock: time.Hour, attributes: map[string]string{"kind": "semaphore", "permits": text, "limit": text}})
		s.wait("x"+text, text, time.Minute)
	}
	s.put("values", metadata.Field{Name: "uuid", Value: hostile()[0]},
		metadata.Field{Name: "alert_at", Value: "\x00soon"}, metadata.Field{Name: "auto_unlock_at", Value: ""},
		metadata.Field{Name: "metadata", Value: "{\"owner\":3,\"<b>\":\"\u202e\"}"},
		metadata.Field{Name: "pid", Value: "-1"}, metadata.Field{Name: "purpose", Value: strings.Repeat("\x00", 1<<20)},
		metadata.Field{Name: "alive", Value: "NaN \x1b"})
	s.foreign = hostile()
	s.unlockers[0].HeldBack = hostile()
	s.unlockers[0].ID = hostile()[0]
	s.unlockers[0].Mode = hostile()[9]
	s.unlockers[0].LastGapCause = hostile()[1]
	s.unlockers[0].WitnessProblem = hostile()[2]
	s.fresh.Cause = hostile()[7]
	for _, text := range hostile() {
		s.members = append(s.members, app.Member{Endpoint: text, Role: text, Version: text, Problem: text})
		s.settings = append(s.settings, app.Setting{Name: text, Value: text})
	}
	for i, text := range hostile() {
		record := s.documents[text].Record
		ending := lockrecord.NewEnding(&record, metadata.EndingForced, text, text, s.now)
		s.endings[fmt.Sprint(i)] = &ending
		s.actions = append(s.actions, protocol.Action{ID: text, At: metadata.Time{Time: s.now}, Actor: text,
			Source: text, Client: text, UserAgent: text, Lock: text, UUID: text, Token: int64(i), Holder: text,
			Reason: text, Ticket: text, Result: text})
	}
	return s
}

// pages are the URLs of everything that shows untrusted text.
func pages() []string {
	list := []string{"/", "/?limit=250", "/?group=owner&limit=250", "/status", "/help", "/waiting",
		"/history", "/audit", "/timeline?window=24h"}
	for _, name := range append(hostile(), "values") {
		parameter := "name=" + url.QueryEscape(name)
		if !utf8.ValidString(name) {
			parameter = "name_b64=" + base64.RawURLEncoding.EncodeToString([]byte(name))
		}
		list = append(list, "/lock?"+parameter, "/lock?"+parameter+"&hold=%3Cb%3E",
			"/lock?name=x"+url.QueryEscape(name), "/?q="+url.QueryEscape(name))
	}
	return list
}

func TestHostileTextIsShownAndHarmless(t *testing.T) {
	t.Parallel()
	s := infested()
	d := s.dashboard(t, withAudit)
	for _, address := range pages() {
		w := get(d, address)
		if w.Code != 200 && w.Code != 404 && w.Code != 400 { // a name that no lock can have
			t.Errorf("GET %.80s answers %d", address, w.Code)
		}
		checkHarmless(t, address, w.Body.String())
		if n := w.Body.Len(); n > 1<<20 {
			t.Errorf("GET %.80s answers with %d bytes", address, n)
		}
	}
}

// checkHarmless parses a page like a browser, and looks for data that became more than text.
func checkHarmless(t *testing.T, address, page string) {
	t.Helper()
	if !utf8.ValidString(page) {
		t.Errorf("GET %.80s: the page is not valid UTF-8", address)
	}
	inScript := false
	seen := map[string]int{}
	err := walk(page, func(token xml.Token) {
		switch e := token.(type) {
		case xml.StartElement:
			seen[e.Name.Local]++
			switch e.Name.Local {
			case "img", "iframe", "object", "embed", "style", "base", "body x", "b x":
				t.Errorf("GET %.80s: there is an element %s", address, e.Name.Local)
			case "script":
				inScript = true
			}
			for _, a := range e.Attr {
				checkAttribute(t, address, a)
				if a.Name.Local == "lang" || a.Name.Local == "id" {
					seen[a.Name.Local+" "+a.Value]++
				}
			}
		case xml.EndElement:
			inScript = inScript && e.Name.Local != "script"
		case xml.CharData:
			if inScript && strings.TrimSpace(string(e)) != "" {
				t.Errorf("GET %.80s: there is a script inline", address)
			}
			if bad := deceptive(string(e)); bad >= 0 {
				t.Errorf("GET %.80s: the text has the character %U", address, bad)
			}
		}
	})
	if err != nil {
		t.Errorf("GET %.80s: the page is not well-formed: %v", address, err)
	}
	checkStructure(t, address, seen)
}

// checkStructure counts elements, languages and ids.
func checkStructure(t *testing.T, address string, seen map[string]int) {
	t.Helper()
	for what, n := range seen {
		if strings.HasPrefix(what, "id ") && n > 1 {
			t.Errorf("GET %.80s: %d elements have the %s", address, n, what)
		}
	}
	if seen["h1"] != 1 || seen["main"] != 1 || seen["lang en"] != 1 {
		t.Errorf("GET %.80s: there is not one heading, one main part and one language: %v", address, seen)
	}
}

// runbooks is where a page leads that is not ours.
const runbooks = "https://github.com/clustermutex/unlocker/blob/main/docs/runbooks.md#unlocker"

func checkAttribute(t *testing.T, address string, a xml.Attr) {
	t.Helper()
	name := strings.ToLower(a.Name.Local)
	if strings.HasPrefix(name, "on") || name == "style" || name == "srcdoc" {
		t.Errorf("GET %.80s: there is an attribute %s", address, name)
	}
	local := strings.HasPrefix(a.Value, "/") && !strings.HasPrefix(a.Value, "//") || strings.HasPrefix(a.Value, "#") ||
		strings.HasPrefix(a.Value, runbooks)
	if (name == "href" || name == "src" || name == "action") && !local {
		t.Errorf("GET %.80s: there is a link to %.60s", address, a.Value)
	}
	if bad := deceptive(a.Value); bad >= 0 && name != "value" { // what was typed stays in the box as it was typed
		t.Errorf("GET %.80s: the attribute %s has the character %U", address, name, bad)
	}
}

// deceptive returns the first character in the text that is invisible or changes the display of others; -1 = none.
func deceptive(text string) rune {
	for _, r := range text {
		if r != '\n' && r != '\t' && r != '…' &&
			(unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co)) {
			return r
		}
	}
	return -1
}

func TestHostileTextIsExactInTheAPI(t *testing.T) {
	s := infested()
	d := s.dashboard(t)
	listed := map[string]bool{}
	for _, link := range attributes(ok(t, d, "/?limit=250"), "href") {
		link, _, _ = strings.Cut(link, "&hold=")
		listed[link] = true
	}
	data, _ := fetch[[]lock](t, d, "/api/v1/locks?limit=1000")
	if len(data) != len(s.documents) {
		t.Errorf("the API lists %d of %d locks", len(data), len(s.documents))
	}
	for _, l := range data {
		name := exactName(t, l)
		document, exists := s.documents[name]
		if !exists {
			t.Errorf("the API names a lock %.40q that does not exist", name)
			continue
		}
		url, _ := l["url"].(string) // absent for a name that no page can be asked for
		if short, _, _ := strings.Cut(url, "&hold="); len(name) < 8<<10 && !listed[short] {
			t.Errorf("the list does not lead to the lock %.40q at %q", name, url)
		}
		if parameters, is := strings.CutPrefix(url, "/lock?"); is {
			checkFields(t, document, ok(t, d, "/api/v1/lock?include=fields&"+parameters))
		}
	}
	timeline, _ := fetch[lock](t, d, "/api/v1/timeline?window=24h")
	held := timeline["intervals"].([]any)
	if len(held) < len(s.documents) {
		t.Errorf("the timeline has %d holds of %d locks", len(held), len(s.documents))
	}
	for _, i := range held {
		name := exactName(t, i.(lock))
		_, exists := s.documents[name]
		_, shared := s.documents[name+"#1"] // whose waiters wait for the whole lock
		if !exists && !shared {
			t.Errorf("the timeline names a lock %.40q that does not exist", name)
		}
	}
}

// exactName is the name of a lock in an answer of the API.
func exactName(t *testing.T, l lock) string {
	t.Helper()
	encoded, is := l["name_base64"].(string)
	if !is {
		return l["name"].(string)
	}
	b, err := base64.StdEncoding.DecodeString(encoded)
	proctest.Must(t, err)
	return string(b)
}

func checkFields(t *testing.T, document metadata.FullRecord, answer string) {
	t.Helper()
	var detail struct {
		Data struct {
			Fields []struct {
				Name     string  `json:"name"`
				Value    *string `json:"value"`
				ValueB64 *string `json:"value_base64"`
			} `json:"fields"`
		} `json:"data"`
	}
	proctest.Must(t, json.Unmarshal([]byte(answer), &detail))
	got := map[string]string{}
	for _, f := range detail.Data.Fields {
		if f.Value != nil {
			got[f.Name] = *f.Value
		} else if b, err := base64.StdEncoding.DecodeString(*f.ValueB64); err == nil {
			got[f.Name] = string(b)
		}
	}
	for _, f := range document.Fields {
		if got[f.Name] != f.Value {
			t.Errorf("the field %s of %.30q is %.60q, want %.60q", f.Name, document.Name, got[f.Name], f.Value)
		}
	}
}

func TestCommandsAreSafeToPaste(t *testing.T) {
	s := newScene()
	d := s.dashboard(t)
	s.add(hold{name: "-$(id)", held: time.Minute, alert: time.Hour, unlock: time.Hour})
	wantWords(t, ok(t, d, "/lock?name=-$(id)"), "mutexctl show -- '-$(id)'")
}

func FuzzLockNeverBreaks(f *testing.F) {
	for _, text := range hostile() {
		f.Add(text, text, text)
	}
	s := newScene()
	d := s.dashboard(f)
	f.Fuzz(func(t *testing.T, name, value, trace string) {
		if name == "" {
			return // no key is that of a lock without a name
		}
		s.locks = nil
		s.add(hold{name: name, owner: value, host: value, purpose: value, held: time.Minute, alert: -time.Minute,
			unlock: time.Hour, backtrace: trace})
		for _, link := range attributes(ok(t, d, "/"), "href") {
			if strings.HasPrefix(link, "/lock?") {
				page := ok(t, d, link)
				checkHarmless(t, link, page)
			}
		}
	})
}
