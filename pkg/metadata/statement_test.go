package metadata_test

import (
	"testing"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestOnlyAStatementAboutTheHoldIsHeeded(t *testing.T) {
	sound := metadata.Statement{Lock: "a", UUID: "u", Token: 7, Cause: metadata.CauseRebooted, Revision: 9}
	for _, c := range []struct {
		what           string
		change         func(*metadata.Record, *metadata.Statement)
		death, proven  bool
		suspicion, off bool
	}{
		{"all is right", func(*metadata.Record, *metadata.Statement) {}, true, true, true, false},
		{"another lock", func(_ *metadata.Record, s *metadata.Statement) { s.Lock = "b" }, false, false, false, false},
		{"another uuid", func(_ *metadata.Record, s *metadata.Statement) { s.UUID = "v" }, false, false, false, false},
		{"another token", func(_ *metadata.Record, s *metadata.Statement) { s.Token = 6 }, false, false, false, false},
		{"a cause that proves nothing", func(_ *metadata.Record, s *metadata.Statement) {
			s.Cause = metadata.CausePodDeleted
		}, false, false, true, false},
		{"a cause of tomorrow", func(_ *metadata.Record, s *metadata.Statement) { s.Cause = "new" }, false, false, true,
			false},
		{"nobody holds the lock", func(r *metadata.Record, s *metadata.Statement) {
			r.Token = 0
			s.Token = 0
		}, false, false, false, false},
		{"a record without uuid", func(r *metadata.Record, s *metadata.Statement) {
			r.UUID = ""
			s.UUID = ""
		}, false, false, false, false},
		{"detached", func(r *metadata.Record, _ *metadata.Statement) {
			r.Process = &metadata.Process{Detached: true}
		}, true, false, true, false},
		{"not detached", func(r *metadata.Record, _ *metadata.Statement) {
			r.Process = &metadata.Process{Start: 3}
		}, true, true, true, false},
		{"an alive before it", func(r *metadata.Record, _ *metadata.Statement) {
			r.Alive = &metadata.Alive{Revision: 8}
		}, true, true, true, false},
		{"an alive after it", func(r *metadata.Record, _ *metadata.Statement) {
			r.Alive = &metadata.Alive{Revision: 10}
		}, true, false, true, true},
		{"a deadline before it", func(r *metadata.Record, _ *metadata.Statement) {
			r.DeadlineRevision = 8
		}, true, true, true, false},
		{"a deadline after it", func(r *metadata.Record, _ *metadata.Statement) {
			r.DeadlineRevision = 10
		}, true, false, true, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := &metadata.Record{Name: "a", UUID: "u", Token: 7}
			s := sound
			c.change(r, &s)
			r.Heed(&s, &s)
			if got := r.Death != nil; got != c.death {
				t.Errorf("death: %v", got)
			}
			if got := r.Proven(); got != c.proven {
				t.Errorf("proven: %v", got)
			}
			if got := r.Suspicion != nil; got != c.suspicion {
				t.Errorf("suspicion: %v", got)
			}
			if got := r.Disputed(); got != c.off {
				t.Errorf("disputed: %v", got)
			}
			r.Heed(nil, nil)
			if r.Death != nil || r.Suspicion != nil || r.Proven() {
				t.Error("a statement that is gone is still heeded")
			}
		})
	}
}

func TestFiveCausesProveAnEnd(t *testing.T) {
	for _, cause := range metadata.Proofs() {
		if s := (metadata.Statement{Cause: cause}); !s.Proof() {
			t.Errorf("%s proves nothing", cause)
		}
	}
	for _, cause := range []string{metadata.CausePodDeleted, metadata.CausePodNeverSeen, metadata.CauseNodeNotReady, "",
		"Rebooted"} {
		if s := (metadata.Statement{Cause: cause}); s.Proof() {
			t.Errorf("%q proves an end", cause)
		}
	}
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
			t.Errorf("%q passes for share %d of %q", name, number, lock)
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

func TestSharesQueueBeforeTheirLock(t *testing.T) {
	for _, c := range []struct{ name, document, want string }{
		{"a#1", `{"kind":"semaphore"}`, "a"}, {"a#2", `{"kind":"shared"}`, "a"}, {"a", `{"kind":"exclusive"}`, "a"},
		{"a#1", `{}`, "a#1"}, {"a#1", `{"kind":"exclusive"}`, "a#1"}, {"a#x", `{"kind":"shared"}`, "a#x"},
		{"a", `{"kind":7}`, "a"},
	} {
		d := metadata.Decode(c.name, []metadata.Field{{Name: metadata.FieldMetadata, Value: c.document}})
		if got := d.Queue(); got != c.want {
			t.Errorf("who wants what %s with %s holds waits for %s, want %s", c.name, c.document, got, c.want)
		}
	}
}
