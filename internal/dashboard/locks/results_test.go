package locks

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/diagnosis/fate"
	"github.com/clustermutex/unlocker/internal/lockorder"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/staleness"
)

func TestSharedSearchSurvivesItsFirstReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		locks := []*metadata.Record{{Name: "billing/1"}, {Name: "mail"}}
		s := NewSnapshots(Source{Locks: func() []*metadata.Record { return locks },
			Fate: func() fate.Fate { return fate.Fate{} }}).
			Current(now, staleness.Moment{Wall: now})
		q := ParseQuery("name:billing/*")
		o := lockorder.Parse("")
		key := o.String() + " " + q.Text
		e, mine := s.results.entry(key)
		if !mine {
			t.Fatal("a search is already running")
		}
		var found *Result
		var failed error
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			found, failed = s.Result(t.Context(), q, o, now)
		}()
		synctest.Wait() // the second reader waits for the first one's search

		left, leave := context.WithCancel(t.Context())
		leave()
		if _, err := s.fill(left, e, key, q, o, now); !errors.Is(err, ErrLeft) {
			t.Errorf("the reader that left got %v, want %v", err, ErrLeft)
		}
		<-answered
		if failed != nil || len(found.Rows) != 1 || found.Rows[0].Name != "billing/1" {
			t.Errorf("the other reader gets %+v, %v", found, failed)
		}
	})
}

func TestSearchFindsEveryTextIgnoringCase(t *testing.T) {
	for _, r := range []*metadata.Record{
		{Name: "an invoice"}, {Holder: metadata.Holder{Owner: "invoices"}},
		{Holder: metadata.Holder{Hostname: "invoice-1"}}, {Holder: metadata.Holder{Purpose: "to\ninvoice"}},
		{Name: "An INVOICE"}, {Holder: metadata.Holder{Owner: "Invoices"}},
		{Name: "A", Holder: metadata.Holder{Hostname: "invoice-1"}},
		{Name: "a", Holder: metadata.Holder{Purpose: "INvoice"}}, {Name: "\xffinvoice"},
	} {
		row := NewRow(r, &fate.Fate{}, staleness.Moment{}, &Queue{})
		for text, want := range map[string]bool{"invoice": true, "Invoice": true, "voucher": false} {
			q := ParseQuery(text)
			if got := q.Matches(row, time.Time{}); got != want {
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
	s := NewSnapshots(Source{Locks: func() []*metadata.Record { return locks },
		Fate: func() fate.Fate { return fate.Fate{} }}).Current(time.Now(), staleness.Moment{})
	ctx, leave := context.WithCancel(t.Context())
	var looked atomic.Int64
	q := &Query{regexps: 1, Terms: []Term{{late: true, match: func(*Row, time.Time) bool {
		looked.Add(1)
		leave()
		return true
	}}}}
	s.matching(ctx, q, time.Now())
	if n := int(looked.Load()); n > len(locks)/10 { // each processor may look at one more
		t.Errorf("it looked at %d locks", n)
	}
}
