package metadata_test

import (
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestOnlyStatementsAboutTheHoldCount(t *testing.T) {
	type change = func(*metadata.Record, *metadata.Statement)
	alive := func(revision int64) change {
		return func(r *metadata.Record, _ *metadata.Statement) { r.Alive = &metadata.Alive{Revision: revision} }
	}
	deadline := func(revision int64) change {
		return func(r *metadata.Record, _ *metadata.Statement) { r.DeadlineRevision = revision }
	}
	process := func(p metadata.Process) change {
		return func(r *metadata.Record, _ *metadata.Statement) { r.Process = &p }
	}
	cause := func(cause string) change {
		return func(_ *metadata.Record, s *metadata.Statement) { s.Cause = cause }
	}
	for _, c := range []struct {
		what   string
		change change
		want   string
	}{
		{"all is right", func(*metadata.Record, *metadata.Statement) {}, "death suspicion proven"},
		{"another lock", func(_ *metadata.Record, s *metadata.Statement) { s.Name = "b" }, ""},
		{"another uuid", func(_ *metadata.Record, s *metadata.Statement) { s.UUID = "v" }, ""},
		{"another token", func(_ *metadata.Record, s *metadata.Statement) { s.Token = 6 }, ""},
		{"a cause that proves nothing", cause(metadata.CausePodDeleted), "suspicion"},
		{"a cause of tomorrow", cause("new"), "suspicion"},
		{"nobody holds the lock", func(r *metadata.Record, s *metadata.Statement) { r.Token, s.Token = 0, 0 }, ""},
		{"a record without uuid", func(r *metadata.Record, s *metadata.Statement) { r.UUID, s.UUID = "", "" }, ""},
		{"detached", process(metadata.Process{Detached: true}), "death suspicion"},
		{"not detached", process(metadata.Process{Start: 3}), "death suspicion proven"},
		{"an alive before it", alive(8), "death suspicion proven"},
		{"an alive after it", alive(10), "death suspicion disputed"},
		{"a deadline before it", deadline(8), "death suspicion proven"},
		{"a deadline after it", deadline(10), "death suspicion disputed"},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := &metadata.Record{Name: "a", UUID: "u", Token: 7}
			s := metadata.Statement{Name: "a", UUID: "u", Token: 7, Cause: metadata.CauseRebooted, Revision: 9}
			c.change(r, &s)
			r.Heed(&s, &s)
			if got := heeded(r); got != c.want {
				t.Errorf("heeded: %q, want %q", got, c.want)
			}
			r.Heed(nil, nil)
			if got := heeded(r); got != "" {
				t.Errorf("a deleted statement still counts: %q", got)
			}
		})
	}
}

func heeded(r *metadata.Record) string {
	var words []string
	for _, fact := range []struct {
		word string
		is   bool
	}{
		{"death", r.Death != nil}, {"suspicion", r.Suspicion != nil},
		{"proven", r.ProvenDead()}, {"disputed", r.Disputed()},
	} {
		if fact.is {
			words = append(words, fact.word)
		}
	}
	return strings.Join(words, " ")
}

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
		d := metadata.Decode("a#1", []metadata.Field{{Name: metadata.FieldMetadata, Value: document}})
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
		d := metadata.Decode(c.name, []metadata.Field{{Name: metadata.FieldMetadata, Value: c.document}})
		if got := d.QueueName(); got != c.want {
			t.Errorf("who wants what %s with %s holds waits for %s, want %s", c.name, c.document, got, c.want)
		}
	}
}
