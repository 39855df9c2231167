package locks

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func TestSearchFindsEveryTextIgnoringCase(t *testing.T) {
	for _, r := range []*metadata.Record{
		{Name: "an invoice"}, {Identity: metadata.Identity{Owner: "invoices"}},
		{Identity: metadata.Identity{Hostname: "invoice-1"}}, {Identity: metadata.Identity{Purpose: "to\ninvoice"}},
		{Name: "An INVOICE"}, {Identity: metadata.Identity{Owner: "Invoices"}},
		{Name: "A", Identity: metadata.Identity{Hostname: "invoice-1"}},
		{Name: "a", Identity: metadata.Identity{Purpose: "INvoice"}}, {Name: "\xffinvoice"},
	} {
		subject := NewRow(r, &diagnosis.CombinedPolicy{}, staleness.Moment{}, &Queue{}).Subject()
		for text, want := range map[string]bool{"invoice": true, "Invoice": true, "voucher": false} {
			q := ParseQuery(text, AboutLocks)
			if got := q.Matches(&subject, time.Time{}); got != want {
				t.Errorf("%q in %+v: %v", text, *r, got)
			}
		}
	}
}

func TestSearchStopsWhenItsLastReaderLeaves(t *testing.T) {
	locks := make([]*metadata.Record, 5000)
	for i := range locks {
		locks[i] = &metadata.Record{Name: fmt.Sprintf("%04d", i)}
	}
	s := Build(Input{Locks: locks}, staleness.Moment{})
	ctx, leave := context.WithCancel(t.Context())
	looked := 0
	q := &Query{regexps: 1, Terms: []Term{{late: true, match: func(*Subject, time.Time) bool {
		looked++
		leave()
		return true
	}}}}
	s.matching(ctx, q, time.Now())
	if looked > len(locks)/10 {
		t.Errorf("it looked at %d locks", looked)
	}
}
