package lockstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// names lists the locks whose names begin with prefix.
func (w world) names(prefix string) []string {
	w.Helper()
	var names []string
	if _, err := w.Records(w.Context(), prefix, func(r *metadata.Record) bool {
		names = append(names, r.Name)
		return true
	}); err != nil {
		w.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestRecordsOfThePrefix(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, w world) {
		for i, lock := range []string{".x", ".y/z", "a", "a/b", "a/b/c", "a%", "pool#1", "pool#2", "zoo", "~"} {
			w.hold(lock, uuid(i+1))
		}
		for _, key := range []string{w.l.Ticket("q", "1"), w.l.Prefix() + "a/stray/key", w.l.Period("p"),
			w.l.History(uuid(90)), w.l.Prefix() + "stray"} {
			w.put(key, "{}")
		}
		for prefix, want := range map[string][]string{
			"":  {".x", ".y/z", "a", "a%", "a/b", "a/b/c", "pool#1", "pool#2", "zoo", "~"},
			".": {".x", ".y/z"}, ".y/": {".y/z"}, "a": {"a", "a%", "a/b", "a/b/c"}, "a/": {"a/b", "a/b/c"},
			"a/b": {"a/b", "a/b/c"}, "a%": {"a%"}, "pool#": {"pool#1", "pool#2"}, "zo": {"zoo"}, "nothing": nil,
		} {
			if got := w.names(prefix); !slices.Equal(got, want) {
				t.Errorf("below %q are %q, want %q", prefix, got, want)
			}
		}
	})
}

func TestRecordsHaveWhatWitnessesSay(t *testing.T) {
	t.Parallel()
	w := start(t)
	r := w.hold("a", uuid(1))
	w.hold("b", uuid(2))
	if err := w.State(t.Context(), metadata.Statement{Lock: "a", UUID: r.UUID, Token: r.Token,
		Cause: metadata.CauseProcessEnded, How: "it ended", Witness: metadata.WitnessHost, By: "w",
		At: metadata.Time{Time: at}}); err != nil {
		t.Fatal(err)
	}
	proven := map[string]bool{}
	revision, err := w.Records(t.Context(), "", func(r *metadata.Record) bool {
		proven[r.Name] = r.Proven()
		return true
	})
	if err != nil || revision < r.Revision || !proven["a"] || proven["b"] || len(proven) != 2 {
		t.Errorf("proven: %v, revision %d, %v", proven, revision, err)
	}
	look, err := w.Look(t.Context(), "a")
	if err != nil || !look.Whole.Proven() {
		t.Errorf("a look at it: %+v, %v", look, err)
	}
}

func TestRecordsEndEarly(t *testing.T) {
	t.Parallel()
	onBothServers(t, func(t *testing.T, w world) {
		for i := range 50 {
			w.hold(fmt.Sprint("lock", i), uuid(i+1))
		}
		n := 0
		if _, err := w.Records(t.Context(), "", func(*metadata.Record) bool { n++; return n < 3 }); err != nil ||
			n != 3 {
			t.Errorf("%d records, %v", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Records(ctx, "", func(*metadata.Record) bool { return true }); !errors.Is(err,
			context.Canceled) {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestLookIsOneLockAtOneRevision(t *testing.T) {
	t.Parallel()
	w := start(t)
	permits := func(d *metadata.Draft) {
		d.Attributes = map[string]any{metadata.AttributeKind: metadata.HoldsPermits, metadata.AttributePermits: 1,
			metadata.AttributeLimit: 5}
	}
	w.hold("pool#10", uuid(1), permits)
	w.hold("pool#2", uuid(2), permits)
	w.hold("pool#third floor", uuid(3))
	w.hold("pool", uuid(4))
	w.put(w.l.Ticket("pool", "b"), `{"owner": "second", "since": null, "timeout_at": null}`)
	w.put(w.l.Ticket("pool", "a"), `{"owner": "third", "since": null, "timeout_at": null}`)
	w.put(w.l.Ticket("pool", "c"), `{"owner": "has it", "since": null, "timeout_at": null, "holding": true}`)
	w.put(w.l.Delay("pool#7"), "{}")
	w.put(w.l.Delay("pool#x"), "{}")
	for _, name := range []string{"pool", "pool#2"} {
		look, err := w.Look(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		var waiters []string
		for _, waiter := range look.Waiters {
			waiters = append(waiters, waiter.Owner)
		}
		if look.Whole.Name != name || look.Whole.Backtrace == "" || look.Revision == 0 ||
			!slices.Equal(waiters, []string{"second", "third"}) {
			t.Errorf("%s: %+v", name, look)
		}
		if name == "pool" && (len(look.Shares) != 2 || look.Shares[0].Name != "pool#10" ||
			look.Shares[1].Name != "pool#2" || len(look.Delays) != 1 || look.Delays[0].Lock != "pool#7") {
			t.Errorf("%+v", look)
		}
	}
	look, err := w.Look(t.Context(), "free")
	if err != nil || len(look.Whole.Fields) > 0 || look.Shares != nil || look.Waiters != nil || look.Delays != nil {
		t.Errorf("a free lock: %+v, %v", look, err)
	}
}
