package protocol_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestNewLayout(t *testing.T) {
	for _, prefix := range []string{"", "/", "//", "/a\nb/", "/a\xff/"} {
		if l, err := protocol.NewLayout(prefix); err == nil {
			t.Errorf("prefix %q is accepted as %q", prefix, l.Prefix())
		}
	}
	for prefix, want := range map[string]string{"/mutexes/": "/mutexes/", "/mutexes": "/mutexes/", "locks": "locks/",
		"/a/b": "/a/b/"} {
		if l, err := protocol.NewLayout(prefix); err != nil || l.Prefix() != want {
			t.Errorf("prefix %q becomes %q, %v, want %q", prefix, l.Prefix(), err, want)
		}
	}
}

func rising() []time.Time {
	return []time.Time{time.Unix(9, 0), time.Unix(10, 0), time.Unix(10, 2e8), time.Unix(10, 25e7), time.Unix(11, 0)}
}

func TestAuditKeysSortByTime(t *testing.T) {
	l := protocol.DefaultLayout()
	var keys []string
	for _, at := range rising() {
		keys = append(keys, l.Audit(at, "z"), l.Audit(at, "~"))
	}
	if !slices.IsSorted(keys) {
		t.Errorf("%q", keys)
	}
	if k := l.Parse(keys[0]); k.Kind != protocol.KindAudit || k.ID != "0000000009-z" {
		t.Errorf("%+v", k)
	}
}

func TestFormatTimeKeepsToItsRange(t *testing.T) {
	for at, want := range map[time.Time]string{
		{}:                            "0000000000",
		time.Unix(-1, 999):            "0000000000",
		time.Unix(1e10, 0):            "9999999999.999999999",
		time.Unix(9_999_999_999, 5e8): "9999999999.5",
	} {
		if got := metadata.FormatTime(at); got != want {
			t.Errorf("%v is written %q, want %q", at, got, want)
		}
	}
}

func TestRangeOfSharesHasAllShares(t *testing.T) {
	l := protocol.DefaultLayout()
	for _, lock := range []string{"a", "a/b", ".a", "a%", "a#b"} {
		from, end := l.Shares(lock)
		for _, number := range []int{1, 2, 9, 10, 99, 123456789} {
			key := l.Field(metadata.ShareName(lock, number), lockrecord.FieldUUID)
			if key < from || key >= end {
				t.Errorf("%s lies outside of [%s, %s)", key, from, end)
			}
		}
		for _, other := range []string{lock, lock + "#", lock + "#x", lock + "#0", lock + "#b#1", lock + "1", "b#1"} {
			if key := l.Field(other, lockrecord.FieldUUID); key >= from && key < end {
				t.Errorf("%s lies in [%s, %s)", key, from, end)
			}
		}
	}
}

func TestTaskNamesCollideWithNoLock(t *testing.T) {
	for _, c := range []struct{ about, set, task, want string }{
		{"a set and a task", "invoices", "42", ""},
		{"a task like a path", "invoices", "2026/42", ""},
		{"no set", "", "42", "the name of the set of tasks is empty"},
		{"no task", "invoices", "", "the name of the task is empty"},
		{"a set with a slash", "invoices/2026", "42", `the set of tasks "invoices/2026" has a slash in its name`},
		{"a line feed", "invoices", "4\n2", "the lock name contains a control character"},
		{"too long together", "invoices", strings.Repeat("x", 248),
			"the lock name has 257 bytes, at most 256 are allowed"},
	} {
		t.Run(c.about, func(t *testing.T) {
			got := ""
			if err := protocol.CheckTask(c.set, c.task); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestPeriodsSortByTheirStart(t *testing.T) {
	var values []string
	for _, start := range rising() {
		for _, words := range []string{"", "taken by z", "~"} {
			values = append(values, protocol.FormatPeriod(protocol.Period{Start: start, Note: words}))
		}
	}
	if !slices.IsSorted(values) {
		t.Errorf("%q", values)
	}
	p, err := protocol.ParsePeriod(values[7])
	if err != nil || !p.Start.Equal(time.Unix(10, 2e8)) || p.Note != "taken by z" {
		t.Errorf("%q is %+v, %v", values[7], p, err)
	}
	for _, value := range []string{"", "soon", "2019-03-27 taken", "1553682600taken"} {
		if p, err := protocol.ParsePeriod(value); err == nil {
			t.Errorf("%q is read as %+v", value, p)
		}
	}
}

func TestUnlistedAreasAreInKeyOrder(t *testing.T) {
	l := protocol.DefaultLayout()
	areas := l.UnlistedAreas()
	if !slices.IsSorted(areas) || slices.Contains(areas, l.Queues()) || slices.Contains(areas, l.Unlockers()) {
		t.Errorf("%q", areas)
	}
	for _, area := range append(areas, l.Queues(), l.Unlockers()) {
		for _, r := range l.Records("") {
			if area >= r.From && area < r.To {
				t.Errorf("%q is among the records", area)
			}
		}
	}
}

func FuzzEncodeName(f *testing.F) {
	for _, name := range []string{"billing", "billing/invoice/42", "100%", ".queue", "%2F", "\xff", "a\x00"} {
		f.Add(name, "billing/")
	}
	l := protocol.DefaultLayout()
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		segment := protocol.EncodeName(a)
		if strings.Contains(segment, "/") || strings.HasPrefix(segment, ".") {
			t.Errorf("%q is written %q, which is not one segment outside of the areas", a, segment)
		}
		if got, err := protocol.DecodeName(segment); got != a || err != nil {
			t.Errorf("%q is written %q, which is read %q, %v", a, segment, got, err)
		}
		if a == b {
			return
		}
		if strings.HasPrefix(l.Record(a), l.Record(b)) {
			t.Errorf("the record of %q lies inside the record of %q", a, b)
		}
		if key := l.Field(a, lockrecord.FieldUUID); key >= l.Record(b) && key < protocol.End(l.Record(b)) {
			t.Errorf("deleting the record of %q takes %q along", b, key)
		}
	})
}

func FuzzDecodeName(f *testing.F) {
	for _, segment := range []string{"billing", "a%2Fb", "%2E", "%25", "a%2fb", "%41", ".", "/", "%"} {
		f.Add(segment)
	}
	f.Fuzz(func(t *testing.T, segment string) {
		name, err := protocol.DecodeName(segment)
		if err == nil && protocol.EncodeName(name) != segment {
			t.Errorf("%q is read %q, which is written %q: two segments for one lock", segment, name,
				protocol.EncodeName(name))
		}
	})
}

func FuzzParseKey(f *testing.F) {
	for _, c := range []string{"billing/uuid", "a/b/uuid", ".queue/a/1", ".history/x", "a/", "/uuid", "%2E/uuid",
		".x/y", ".periods/a%2Fb", ".tasks/a/b%2Fc", ".tasks/a%2Fb/c"} {
		f.Add(protocol.DefaultPrefix + c)
	}
	l := protocol.DefaultLayout()
	f.Fuzz(func(t *testing.T, key string) {
		k := l.Parse(key)
		if k.Kind != protocol.KindForeign && build(l, k) != key {
			t.Errorf("%q is %+v, which is built %q", key, k, build(l, k))
		}
		inRecord := k.Kind == protocol.KindField || k.Kind == protocol.KindForeign && k.Lock != ""
		if inRecord != (k.Lock != "" && strings.HasPrefix(key, l.Record(k.Lock))) {
			t.Errorf("%q is %+v", key, k)
		}
	})
}
