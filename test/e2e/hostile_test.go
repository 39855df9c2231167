package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// TestHostileRecordsCrashNothingAndHideNothing writes everything that a hostile client could write. All programs show
// all of it, only the one stale lock among it is removed and, with a default policy for malformed locks, only these.
func TestHostileRecordsCrashNothingAndHideNothing(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t)
	c := etcd.Client(t)
	for _, all := range []map[string]string{keys(malformed()), keys(odd()), sound().at(prefix + "neighbour"),
		foreignKeys()} {
		write(t, c, all)
	}
	before := protocolKeys(t, c)
	u := startUnlocker(t, []string{etcd.Endpoint()}, "--metrics.lock-series=all").ready(t)
	dash := startDashboard(t, etcd.Endpoint())
	held := len(odd()) + 1
	shows(t, u.addr, float64(held), `unlocker_locks{state="held"}`)
	shows(t, u.addr, float64(len(malformed())+len(misplaced())), `unlocker_locks{state="malformed"}`)
	shows(t, u.addr, 0, "unlocker_lock_series_dropped")

	names := slices.Concat(slices.Collect(maps.Keys(malformed())), slices.Collect(maps.Keys(odd())),
		[]string{"neighbour"})
	checkCommandLine(t, etcd.Endpoint(), names)
	checkDashboard(t, dash, slices.Concat(names, misplaced()))

	stale := `stale </td><script>alert(1)</script>` + "\x1b[31m\n"
	write(t, c, keys(map[string]record{stale: expired(evil()[0])}))
	shows(t, u.addr, 1, `unlocker_removals_total{result="success"}`)
	same(t, c, before)

	u.Terminate(t)
	u = startUnlocker(t, []string{etcd.Endpoint()}, "--sweep.default-alert-after=200ms",
		"--sweep.default-auto-unlock-after=400ms").ready(t)
	shows(t, u.addr, float64(len(misplaced())), `unlocker_locks{state="malformed"}`)
	shows(t, u.addr, 0, `unlocker_locks{state="expired"}`)
	for key := range keys(malformed()) {
		delete(before, key)
	}
	same(t, c, before)
	shows(t, u.addr, float64(held), `unlocker_locks{state="held"}`)
	objects(t, u.Process)
	objects(t, dash.Process)
	if !u.Running() || !dash.Running() {
		t.Error("a daemon ended")
	}
}

// expired is a record with passed deadlines and hostile texts.
func expired(text string) record {
	return with("owner", text, "hostname", text, "purpose", text, "alert_at", "1553682600", "auto_unlock_at",
		"1553682601")
}

// protocolKeys returns all keys below the prefix except those that unlockers write.
func protocolKeys(t *testing.T, c *clientv3.Client) map[string]string {
	t.Helper()
	all := stored(t, c, prefix)
	maps.DeleteFunc(all, func(key, value string) bool {
		own := strings.HasPrefix(key, prefix+".unlockers/") || strings.HasPrefix(key, prefix+".history/")
		return own && strings.Contains(value, `"id":"`) || strings.Contains(value, `"auto_unlocked"`)
	})
	return all
}

// same expects exactly these keys.
func same(t *testing.T, c *clientv3.Client, want map[string]string) {
	t.Helper()
	proctest.Eventually(t, "the keys that are left", func() error {
		got := protocolKeys(t, c)
		if maps.Equal(got, want) {
			return nil
		}
		return errors.New(cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))))
	})
}

// checkCommandLine expects every lock in every format, without terminal control characters.
func checkCommandLine(t *testing.T, endpoint string, names []string) {
	t.Helper()
	for _, format := range []string{"table", "wide", "json", "name"} {
		o := command(t, "mutexctl", "list", "--output="+format, "--etcd.endpoints="+endpoint)
		if o.Code != 0 {
			t.Errorf("mutexctl list -o %s: %d: %s", format, o.Code, o.Stderr)
		}
		if !utf8.ValidString(o.Stdout) || strings.ContainsFunc(o.Stdout, obeyed) {
			t.Errorf("mutexctl list -o %s prints what a terminal obeys", format)
		}
		if lines := strings.Count(o.Stdout, "\n"); lines < len(names) {
			t.Errorf("mutexctl list -o %s has %d lines for %d locks", format, lines, len(names))
		}
	}
}

func obeyed(r rune) bool {
	return r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// checkDashboard expects every lock in the API, and a page.
func checkDashboard(t *testing.T, d *dashboard, names []string) {
	t.Helper()
	body := answers(t, d.addr, "/api/v1/locks?limit=1000", 200)
	var answer struct {
		Data []struct{ Name string } `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	shown := map[string]bool{}
	for _, l := range answer.Data {
		shown[l.Name] = true
	}
	for _, name := range names {
		if utf8.ValidString(name) && !shown[name] {
			t.Errorf("the API hides %q", name)
		}
	}
	if len(answer.Data) != len(names) {
		t.Errorf("the API shows %d locks of %d", len(answer.Data), len(names))
	}
	answers(t, d.addr, "/?limit=1000", 200)
}

// dashboard is a running mutexdash.
type dashboard struct {
	*proctest.Process
	addr, ops string
}

func startDashboard(t *testing.T, endpoint string, more ...string) *dashboard {
	t.Helper()
	addr := proctest.FreeAddr(t)
	ops := proctest.FreeAddr(t)
	d := &dashboard{addr: addr, ops: ops, Process: start(t, "mutexdash", append([]string{
		"--etcd.endpoints=" + endpoint, "--web.listen-address=" + addr, "--web.ops-address=" + ops,
		"--web.shutdown-delay=0s",
	}, more...)...)}
	answers(t, ops, "/livez", 200)
	return d
}

// evil lists texts that break careless programs.
func evil() []string {
	return []string{
		"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "{{.}} ${x} %s %n", "' OR 1=1 --",
		"nul\x00bell\atab\tline\nreturn\r", "\x1b]0;title\a\x1b[31mred\x1b[2J", "\u202egnp.exe\u2066",
		"c1 \u009b31m\u0085", "beyond \U000e0041\U0010ffff", "\u2028\u2029\ufeff\u200b",
		"\xff\xfe\xed\xa0\x80", "half a character \xe2\x82", "日本語 👩‍👩‍👧 naïve", "..", ".queue", " ",
		strings.Repeat("long ", 60),
	}
}

// record is the fields of one lock in etcd.
type record map[string]string

const megabyte = 1 << 20

// sound returns a valid record, far from its deadlines.
func sound() record {
	return record{
		"uuid": "11111111-2222-4333-8444-555555555555", "hostname": "host-1", "locked_at": in(0),
		"alert_at": in(time.Hour), "auto_unlock_at": in(2 * time.Hour),
	}
}

// in returns a time relative to now, as in etcd.
func in(d time.Duration) string { return metadata.FormatTime(time.Now().Add(d)) }

// with returns a sound record with these fields changed; an empty name removes a field.
func with(pairs ...string) record {
	r := sound()
	for i := 0; i < len(pairs); i += 2 {
		r[pairs[i]] = pairs[i+1]
	}
	return r
}

func without(fields ...string) record {
	r := sound()
	for _, f := range fields {
		delete(r, f)
	}
	return r
}

// malformed are records without a uuid or without a readable deadline, by name. No unlocker may remove them for their
// deadlines.
func malformed() map[string]record {
	all := map[string]record{
		"uuid missing":      without("uuid", "auto_unlock_at"),
		"uuid and all gone": {"hostname": "host-1"},
		"deadlines missing": without("alert_at", "auto_unlock_at"),
		"only a uuid":       {"uuid": "11111111-2222-4333-8444-555555555555"},
		"empty uuid":        with("uuid", "", "auto_unlock_at", "soon"),
		"large times": with("alert_at", strings.Repeat("1", megabyte), "auto_unlock_at",
			strings.Repeat("9", 300_000)),
	}
	numbers := []string{"soon", "-1", "1e9", "NaN", "+Inf", "", "0x65", "1553682600.", "1553682600,5", "15536826000",
		"１５５３６８２６００"}
	for _, at := range append(evil(), numbers...) {
		all["time "+at] = with("auto_unlock_at", at)
	}
	for _, at := range numbers { // and not all: the brake is for when more than half of the locks go
		all["alert "+at] = with("alert_at", at, "auto_unlock_at", at)
	}
	return all
}

// odd are records that are otherwise irregular, by name: they are held, and far from their deadlines.
func odd() map[string]record {
	all := map[string]record{
		"from the future": with("locked_at", "9999999999.999999999", "alert_at", "9999999998", "auto_unlock_at",
			"9999999999.999999999"),
		"no uuid at all":  with("uuid", "me"),
		"large uuid":      with("uuid", strings.Repeat("u", megabyte)),
		"large purpose":   with("purpose", strings.Repeat("p", megabyte)),
		"large backtrace": with("backtrace", strings.Repeat("main.go:1 \xff\n", megabyte/12)),
		"large document":  with("metadata", `{"owner":"`+strings.Repeat("o", megabyte)+`"}`),
		"no document":     with("metadata", "]["),
		"deep document":   with("metadata", strings.Repeat(`{"a":`, 20_000)+"1"+strings.Repeat("}", 20_000)),
		"wrong document": with("metadata",
			`{"owner":{},"pid":"x","locked_at":[],"purpose":null,"hostname":1e999,"alert_at":"soon"}`),
		"crowded document":  with("metadata", crowded()),
		"junk":              with("pid", "-1", "locked_at", "soon", "alive", "\xff \xff", "client", "\x00"),
		"alive in any time": with("alive", "9999999999 still there"),
	}
	for i, text := range evil() {
		all[text] = with("owner", text, "purpose", text, "client", text, fmt.Sprint("attribute_", i), text, "alive",
			text)
		all["host "+text] = with("hostname", text, "backtrace", text)
	}
	crowd := sound()
	for i := range 300 {
		crowd[fmt.Sprint("field_", i)] = "x"
	}
	all["crowded"] = crowd
	return all
}

func crowded() string {
	var b strings.Builder
	b.WriteString("{")
	for i := range 20_000 {
		fmt.Fprintf(&b, `"m%d":%d,`, i, i)
	}
	return b.String() + `"owner":"o"}`
}

// foreignKeys are keys below the prefix that do not belong to the protocol, or break one of its areas.
func foreignKeys() map[string]string {
	all := map[string]string{
		prefix + "neighbour/b/uuid": "x", prefix + "neighbour/UPPER": "x", prefix + "neighbour/": "x",
		prefix + "neighbour//uuid": "x",
		prefix + "%41/uuid":        "x", prefix + "a%2fb/uuid": "x", prefix + "/uuid": "x", prefix + "lonely": "x",
		prefix:                             "x",
		prefix + ".queue/neighbour/ticket": "][", prefix + ".queue/neighbour/\xff": `{"since":"soon","timeout_at":-1}`,
		prefix + ".queue/": "x", prefix + ".queue/a/b/c": "x",
		prefix + ".unlockers/evil": `{"id":"<script>","now":9999999999,"mode":"\u0000"}`,
		prefix + ".unlockers/junk": "\xff", prefix + ".history/junk": "junk", prefix + ".history/": "x",
		prefix + ".audit/junk": "junk",
		// Keys that later versions may write.
		prefix + ".queue/neighbour/newer": `{"owner":"reports","timeout_at":null,"weights":[1,2],"class":"night"}`,
		prefix + ".unlockers/newer":       `{"id":"newer","mode":"predictive","held_back":["weather"],"load":{"cpu":0.5}}`,
		prefix + ".history/newer":         `{"lock":"elsewhere","ended":"transferred","to":{"host":"host-2"}}`,
		prefix + ".cancelled/":            "x", prefix + ".other/x": "x", prefix + strings.Repeat("/", 50): "x",
	}
	for _, text := range evil() {
		all[prefix+text] = text
		all[prefix+"neighbour/"+text] = text
	}
	return all
}

// misplaced are the names under which those of the foreign keys are shown that look like records of locks. They are
// malformed; the command line leaves them out, and nobody removes them.
func misplaced() []string {
	return []string{prefix + "%41", prefix + "a%2fb", prefix}
}

// at are the fields of a record as keys below that of its lock.
func (r record) at(lock string) map[string]string {
	all := map[string]string{}
	for field, value := range r {
		all[lock+"/"+field] = value
	}
	return all
}

// keys are the records as keys in etcd.
func keys(records map[string]record) map[string]string {
	all := map[string]string{}
	for name, r := range records {
		maps.Copy(all, r.at(prefix+protocol.EncodeName(name)))
	}
	return all
}
