package metadata_test

import (
	"testing"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestNamesOfShares(t *testing.T) {
	for name, want := range map[string]struct {
		lock   string
		number int
	}{
		"a#1": {"a", 1}, "a#999999999": {"a", 999999999}, "a#b#2": {"a#b", 2}, "a/b#10": {"a/b", 10}, ".#1": {".", 1},
	} {
		lock, number, ok := metadata.ParseShare(name)
		if !ok || lock != want.lock || number != want.number {
			t.Errorf("%s is share %d of %q, %v", name, number, lock, ok)
		}
		if back := metadata.ShareName(lock, number); back != name {
			t.Errorf("%s is written %s", name, back)
		}
	}
	for _, name := range []string{"", "a", "a#", "#1", "a#0", "a#01", "a#1x", "a#-1", "a#+1", "a# 1", "a#1 ",
		"a#1000000000", "a1", "a#١"} {
		if lock, number, ok := metadata.ParseShare(name); ok {
			t.Errorf("%q is accepted as share %d of %q", name, number, lock)
		}
	}
}

func TestPermitsOfARecord(t *testing.T) {
	for document, want := range map[string]int{
		`{}`: 1, `{"permits":3}`: 3, `{"permits":"3"}`: 3, `{"permits":null}`: 1,
		`{"permits":0}`: 0, `{"permits":-1}`: 0, `{"permits":1.5}`: 0, `{"permits":true}`: 0, `{"permits":"many"}`: 0,
		`{"permits":1e99}`: 0,
	} {
		d := lockrecord.Decode("a#1", []metadata.Field{{Name: lockrecord.FieldMetadata, Value: document}})
		if n := d.Permits(); n != want {
			t.Errorf("%s has %d permits, want %d", document, n, want)
		}
	}
}

func TestSharesSortBeforeTheirLock(t *testing.T) {
	for _, c := range []struct{ name, document, want string }{
		{"a#1", `{"kind":"semaphore"}`, "a"}, {"a#2", `{"kind":"shared"}`, "a"}, {"a", `{"kind":"exclusive"}`, "a"},
		{"a#1", `{}`, "a#1"}, {"a#1", `{"kind":"exclusive"}`, "a#1"}, {"a#x", `{"kind":"shared"}`, "a#x"},
		{"a", `{"kind":7}`, "a"},
	} {
		d := lockrecord.Decode(c.name, []metadata.Field{{Name: lockrecord.FieldMetadata, Value: c.document}})
		if got := d.QueueName(); got != c.want {
			t.Errorf("who wants what %s with %s holds waits for %s, want %s", c.name, c.document, got, c.want)
		}
	}
}
