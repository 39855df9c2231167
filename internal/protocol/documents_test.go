package protocol_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

func TestEndingCarriesTheRecord(t *testing.T) {
	at := time.Unix(1_553_683_506, 0).UTC()
	fields, err := metadata.Draft{
		UUID:     "6f1f6f5e-5d1c-4e52-9d2e-0a9a3f1c7b11",
		Holder:   metadata.Holder{Owner: "billing", Hostname: "billing-7f9c", PID: 17, Purpose: "nightly invoices"},
		Client:   "go/1.0.0",
		LockedAt: at.Add(-15 * time.Minute), AlertAt: at.Add(-10 * time.Minute), AutoUnlockAt: at,
		Attributes: map[string]any{"tenant": 41, "team": "core", "urgent": true},
	}.Fields()
	if err != nil {
		t.Fatal(err)
	}
	d := metadata.Decode("billing/invoice", append(fields, metadata.Field{Name: "alive", Value: "1553682700 page 3"}))
	want := metadata.NewEnding(&d.Record, metadata.EndedAutoUnlocked, "eu-1", "past its auto_unlock_at", at)
	got, err := protocol.Unmarshal[metadata.Ending]([]byte(protocol.Marshal(want)))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]any{"team": "core", "tenant": float64(41), "urgent": true} {
		if got.Attributes[name] != value {
			t.Errorf("attribute %s is %v (%T)", name, got.Attributes[name], got.Attributes[name])
		}
	}
	got.Attributes = want.Attributes
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got.Progress != "page 3" || got.Lock != "billing/invoice" || got.Why == "" {
		t.Errorf("%+v", got)
	}
}

func TestEndingOfARecordWithoutTimes(t *testing.T) {
	d := metadata.Decode("a", nil)
	text := protocol.Marshal(metadata.NewEnding(&d.Record, metadata.EndedForced, "ann", "why", time.Unix(5, 0)))
	if !strings.Contains(text, `"alert_at":null`) || strings.Contains(text, "alive_at") {
		t.Error(text)
	}
	if e, err := protocol.Unmarshal[metadata.Ending]([]byte(text)); err != nil || !e.AlertAt.IsZero() {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestTimesInDocuments(t *testing.T) {
	want := time.Unix(1_553_682_600, 25e7).UTC()
	for name, c := range map[string]struct {
		since string
		fails bool
	}{
		"as text":                  {`"1553682600.25"`, false},
		"as a number":              {`1553682600.25`, false},
		"a word":                   {`"soon"`, true},
		"a number in milliseconds": {`1553682600250`, true},
		"an object":                {`{}`, true},
	} {
		t.Run(name, func(t *testing.T) {
			ticket, err := protocol.Unmarshal[metadata.Ticket]([]byte(`{"uuid":"x","since":` + c.since +
				`,"timeout_at":null}`))
			if (err != nil) != c.fails || !c.fails && ticket.Since.Time != want {
				t.Errorf("%v, %v", ticket.Since, err)
			}
		})
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"uuid":"x","since":"1553682600","timeout_at":1553682600.5}`))
	f.Add([]byte(`{"lock":"a","attributes":{"a":[{}]},"alive_at":null,"now":"'1553682600'"}`))
	f.Add([]byte(presence(`"sweep":` + sweep + `,"held_back":["gap"]`)))
	f.Fuzz(func(t *testing.T, value []byte) {
		if p := protocol.ReadPresence("x", value); p != nil {
			roundTrip(t, *p)
		}
		if p, err := protocol.Unmarshal[metadata.Presence](value); err == nil {
			roundTrip(t, p)
		}
		if e, err := protocol.Unmarshal[metadata.Ending](value); err == nil {
			roundTrip(t, e)
		}
		if a, err := protocol.Unmarshal[protocol.Action](value); err == nil {
			roundTrip(t, a)
		}
		if w, err := protocol.Unmarshal[metadata.Ticket](value); err == nil {
			roundTrip(t, w)
		}
	})
}

func roundTrip[T metadata.Ticket | metadata.Ending | metadata.Presence | protocol.Action](t *testing.T, document T) {
	t.Helper()
	text := protocol.Marshal(document)
	again, err := protocol.Unmarshal[T]([]byte(text))
	if err != nil || protocol.Marshal(again) != text {
		t.Errorf("%s is read again as %+v, %v", text, again, err)
	}
}
