package locks

import (
	"slices"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

// What is not held has no state and no deadline. It once counted as malformed.
func TestOnlyHoldsHaveStatesAndDeadlines(t *testing.T) {
	noon := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	since := WaitSummary{Waiters: 1, Longest: noon.Add(-time.Hour)}
	for about, s := range map[About]Subject{
		AboutLocks:   {Name: "billing/run", Waiters: since.Waiters, Waits: since.Longest},
		AboutActions: {Name: "Billing/run", Owner: "Ann", Host: "Web-1", Purpose: "it\nHANGS\"on"},
	} {
		for _, text := range []string{"state:malformed", "state:held,expired", "alert:<1h", "unlock:<1h", "expired:>0s",
			"held:>0s", "db:migrate"} {
			if q := ParseQuery(text, about); q.Matches(&s, noon) {
				t.Errorf("%s finds %+v", text, s)
			}
		}
		for _, text := range []string{"billing", "BILLING/* x*", "billing/ru?", "name:=billing/run", "name:*x,ing/",
			"-x*",
			"-state:held", "-db:migrate"} {
			if q := ParseQuery(text, about); !q.Matches(&s, noon) {
				t.Errorf("%s does not find %+v", text, s)
			}
		}
		if q := ParseQuery(`billing ANN web-1 hangs"on`, about); q.Matches(&s, noon) != (s.Owner != "") {
			t.Errorf("%s is not searched in all texts of %+v", q.Text, s)
		}
	}
}

func TestTermsThatDoNotApplyAreReported(t *testing.T) {
	for text, about := range map[string]About{"ended:released": AboutLocks, "state:malformed": AboutActions,
		"waiters:<1": AboutEndings, "owner:x": AboutNames, "acknowledged:no": AboutDelays,
		"purpose:x": AboutIntervals} {
		for sign, nothing := range map[string]bool{"": true, "-": false} {
			q := ParseQuery(sign+text, about)
			if len(q.Problems) != 1 || q.Problems[0].Nothing != nothing || q.Err() == nil {
				t.Errorf("%s has the problems %+v", q.Text, q.Problems)
			}
			if got := q.Matches(&Subject{Name: "a"}, time.Time{}); got == nothing {
				t.Errorf("%s matches: %v", q.Text, got)
			}
		}
	}
}

// Nothing that can be typed breaks a search, and a query is the same after a link or a command line took it apart.
func FuzzQuery(f *testing.F) {
	for _, form := range TermsHelp() {
		f.Add(form.Term, "billing/nightly", "ann")
	}
	f.Add(`-"two words" a* ?b -c* name:=x,y held:>1d -state:held name:/(/ -`, "two words", "b")
	f.Fuzz(func(t *testing.T, text, name, owner string) {
		record := &metadata.Record{Name: name, UUID: owner, Identity: metadata.Identity{Owner: owner}}
		now := time.Unix(1e9, 0)
		row := NewRow(record, &diagnosis.CombinedPolicy{}, staleness.Moment{Wall: now}, &WaitSummary{}, "")
		for about := AboutLocks; about <= AboutNames; about++ {
			q := ParseQuery(text, about)
			s := row.Subject()
			found := q.Matches(&s, now)
			if about == AboutLocks {
				checkResult(t, q, row, found)
			}
			if found && slices.ContainsFunc(q.Problems, func(p QueryProblem) bool { return p.Nothing }) {
				t.Errorf("%q finds something in spite of %+v", text, q.Problems)
			}
			again := ParseQuery(q.Dropping(), about)
			if got := again.Matches(&s, now); got != found && len(text) <= MaxQueryBytes {
				t.Errorf("%q finds %v, its terms %q %v", text, found, again.Text, got)
			}
		}
	})
}

// checkResult holds a search among many to the row that it should find.
func checkResult(t *testing.T, q *Query, row *Row, found bool) {
	s := Build(Input{Locks: []*metadata.Record{row.Record}}, staleness.Moment{Wall: time.Unix(1e9, 0)})
	result, err := s.Search(t.Context(), q, Order{By: "name"}, time.Unix(1e9, 0))
	if err != nil || len(result.Rows) == 1 != found {
		t.Errorf("%q finds %d rows, want %v: %v", q.Text, len(result.Rows), found, err)
	}
}
