package protocol_test

import (
	"slices"
	"testing"
	"time"

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

func TestRecordsAreAllButTheAreas(t *testing.T) {
	l := layout(t)
	records := l.Records()
	inRecords := func(key string) bool {
		return slices.ContainsFunc(records[:], func(r [2]string) bool { return key >= r[0] && key < r[1] })
	}
	for _, name := range []string{"a", "!", "-", "0", "~", "%", "/", ".", ".queue", "é", "\U0010ffff", " "} {
		if key := l.Field(name, metadata.FieldUUID); !inRecords(key) {
			t.Errorf("%q is not among the records", key)
		}
	}
	for _, key := range []string{
		l.Ticket("a", "1"), l.Cancelled("x"), l.History("x"), l.Unlocker("x"), l.Audit(time.Unix(1, 0), "x"),
		l.Prefix() + ".future/x", "/mutexes0", "/mutexe",
	} {
		if inRecords(key) {
			t.Errorf("%q is among the records", key)
		}
	}
}

func TestAuditKeysSortByTime(t *testing.T) {
	l := layout(t)
	var keys []string
	for _, at := range []time.Time{time.Unix(9, 0), time.Unix(10, 0), time.Unix(10, 2e8), time.Unix(10, 25e7),
		time.Unix(11, 0)} {
		keys = append(keys, l.Audit(at, "z"), l.Audit(at, "~"))
	}
	if !slices.IsSorted(keys) {
		t.Errorf("%q", keys)
	}
	if k := l.Parse(keys[0]); k.Kind != protocol.KindAudit || k.ID != "0000000009-z" {
		t.Errorf("%+v", k)
	}
}

func TestEnd(t *testing.T) {
	for prefix, want := range map[string]string{"/a/": "/a0", "a\xff": "b", "\xff\xff": "\x00", "": "\x00"} {
		if got := protocol.End(prefix); got != want {
			t.Errorf("the end of %q is %q, want %q", prefix, got, want)
		}
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

func TestRangeOfSharesHoldsThemAll(t *testing.T) {
	l := layout(t)
	for _, lock := range []string{"a", "a/b", ".a", "a%", "a#b"} {
		from, end := l.Shares(lock)
		for _, number := range []int{1, 2, 9, 10, 99, 123456789} {
			key := l.Field(metadata.ShareName(lock, number), metadata.FieldUUID)
			if key < from || key >= end {
				t.Errorf("%s lies outside of [%s, %s)", key, from, end)
			}
		}
		for _, other := range []string{lock, lock + "#", lock + "#x", lock + "#0", lock + "#b#1", lock + "1", "b#1"} {
			if key := l.Field(other, metadata.FieldUUID); key >= from && key < end {
				t.Errorf("%s lies in [%s, %s)", key, from, end)
			}
		}
	}
}
