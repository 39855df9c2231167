package e2e

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

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

// record is the fields of one lock as they lie in etcd.
type record map[string]string

const megabyte = 1 << 20

// sound is a record with nothing wrong, far from its deadlines.
func sound() record {
	return record{
		"uuid": "11111111-2222-4333-8444-555555555555", "hostname": "host-1", "locked_at": in(0),
		"alert_at": in(time.Hour), "auto_unlock_at": in(2 * time.Hour),
	}
}

// in is a time so long from now, as it lies in etcd.
func in(d time.Duration) string { return metadata.FormatTime(time.Now().Add(d)) }

// with is a sound record but for these fields; an empty name removes a field.
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

// malformed are records without a uuid or without a deadline that can be read, by name. Nobody may remove them for
// their deadlines.
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

// odd are records that are strange in other ways, by name: they are held, and far from their deadlines.
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

// foreignKeys are keys below the prefix that are nothing of the protocol, or spoil one of its areas.
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
		// What later versions may write.
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
