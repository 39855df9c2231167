package lockrecord_test

import (
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/lockrecord"
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
			lockrecord.AttachStatements(r, &s, &s)
			if got := attached(r); got != c.want {
				t.Errorf("attached: %q, want %q", got, c.want)
			}
			lockrecord.AttachStatements(r, nil, nil)
			if got := attached(r); got != "" {
				t.Errorf("a deleted statement still counts: %q", got)
			}
		})
	}
}

func attached(r *metadata.Record) string {
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
