package lockstore_test

import (
	"slices"
	"testing"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// names lists the locks whose names begin with prefix.
func (w world) names(prefix string) []string {
	w.Helper()
	var names []string
	if err := w.ListRecords(w.Context(), prefix, func(r *metadata.Record) bool {
		names = append(names, r.Name)
		return true
	}); err != nil {
		w.Fatal(err)
	}
	slices.Sort(names)
	return names
}

func TestRecordsOfThePrefix(t *testing.T) {
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

func TestRecordsIncludeStatements(t *testing.T) {
	w := alone(t)
	r := w.hold("a", uuid(1))
	w.hold("b", uuid(2))
	w.prove(r)
	proven := map[string]bool{}
	err := w.ListRecords(t.Context(), "", func(r *metadata.Record) bool {
		proven[r.Name] = r.ProvenDead()
		return true
	})
	if err != nil || !proven["a"] || proven["b"] || len(proven) != 2 {
		t.Errorf("proven: %v, %v", proven, err)
	}
	look, err := w.ReadLock(t.Context(), "a")
	if err != nil || !look.Record.ProvenDead() {
		t.Errorf("a look at it: %+v, %v", look, err)
	}
}

func TestLookReadsOneLockAtOneRevision(t *testing.T) {
	w := parallel(t)
	permits := func(d *lockrecord.Draft) {
		d.Attributes = map[string]any{metadata.AttributeKind: metadata.KindSemaphore, metadata.AttributePermits: 1,
			metadata.AttributeLimit: 5}
	}
	w.hold("pool", uuid(4)) // later it would be refused
	w.hold("pool#10", uuid(1), permits)
	w.hold("pool#2", uuid(2), permits)
	w.hold("pool#third floor", uuid(3))
	w.put(w.l.Ticket("pool", "b"), `{"owner": "second", "since": null, "timeout_at": null}`)
	w.put(w.l.Ticket("pool", "a"), `{"owner": "third", "since": null, "timeout_at": null}`)
	w.put(w.l.Ticket("pool", "c"), `{"owner": "has it", "since": null, "timeout_at": null, "holding": true}`)
	w.put(w.l.Delay("pool#7"), "{}")
	w.put(w.l.Delay("pool#x"), "{}")
	for _, name := range []string{"pool", "pool#2"} {
		look, err := w.ReadLock(t.Context(), name)
		proctest.Must(t, err)
		var waiters []string
		for _, waiter := range look.Waiters {
			waiters = append(waiters, waiter.Owner)
		}
		if look.Record.Name != name || look.Record.Backtrace == "" || look.Revision == 0 ||
			!slices.Equal(waiters, []string{"second", "third"}) {
			t.Errorf("%s: %+v", name, look)
		}
		if name == "pool" && (len(look.Shares) != 2 || look.Shares[0].Name != "pool#10" ||
			look.Shares[1].Name != "pool#2" || len(look.Delays) != 1 || look.Delays[0].Name != "pool#7") {
			t.Errorf("%+v", look)
		}
	}
	look, err := w.ReadLock(t.Context(), "free")
	if err != nil || len(look.Record.Fields) > 0 || look.Shares != nil || look.Waiters != nil || look.Delays != nil {
		t.Errorf("a free lock: %+v, %v", look, err)
	}
}

// Leftovers of a record would alert forever, so a removal must delete all of it but no foreign key.
func TestRemovalAmongForeignKeysIsComplete(t *testing.T) {
	w := alone(t)
	// What holding a lock writes lies between the keys "a…" and "v…".
	cases := map[string]struct {
		fields, foreign []string
		stays           bool // some of the fields that hold nothing
	}{
		"many fields and one foreign key at the end": {many("f%d", 400), []string{"zz/alive"}, false},
		"many fields around foreign keys": {append(many("a%d", 100), many("v%d", 100)...),
			[]string{"AA", "b/uuid", "m/uuid", "v5/x", "zz/x"}, false},
		"many foreign keys in a row":                       {many("f%d", 60), many("f5/%d", 3000), false},
		"more foreign keys than are read, and no other":    {nil, many("Z%05d", 10_500), false},
		"more foreign keys than are read, and every field": {unwritten(), many("Z%05d", 10_500), false},
		"more between its fields than go at once":          {many("x%02d", 40), many("x%02d-", 40), false},
		"more between its fields than one request takes":   {many("x%03d", 150), many("x%03d-", 150), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w.TB = t
			w.putFields(name, c.foreign, "x")
			for _, remove := range []string{"auto-unlock", "force-unlock"} {
				w.hold(name, uuid(1))
				w.putFields(name, c.fields, "x")
				r := w.record(name)
				var err error
				if remove == "auto-unlock" {
					err = w.AutoUnlock(t.Context(), []lockrecord.Removal{removal(r)})[0]
				} else {
					err = w.do(r, action(r))
				}
				proctest.Must(t, err)
				left := w.keys(w.l.Record(name))
				foreign := 0
				for _, key := range left {
					if w.l.Parse(key).Kind == protocol.KindForeign {
						foreign++
					} else if !c.stays {
						t.Errorf("%s left %s", remove, key)
					}
				}
				if now := w.record(name); now.UUID != "" {
					t.Errorf("after %s it is held by %s", remove, now.UUID)
				}
				if foreign != len(c.foreign) {
					t.Errorf("%s left %d foreign keys, want %d", remove, foreign, len(c.foreign))
				}
			}
		})
	}
}

func TestRemoveTicketRemovesOnlyTheSeenTicket(t *testing.T) {
	w := parallel(t)
	key := w.l.Ticket("a", "1")
	behind := w.l.Ticket("a", "11")
	seen := metadata.Waiter{Name: "a", ID: "1", Revision: w.put(key, "{}")}
	w.put(behind, "{}")
	proctest.Must(t, w.RemoveTicket(t.Context(), seen))
	w.moved("a second time", w.RemoveTicket(t.Context(), seen))
	w.put(key, "{}") // somebody else queues under the same key
	w.moved("another's ticket", w.RemoveTicket(t.Context(), seen))
	if left := w.keys(w.l.Queue("a")); !slices.Equal(left, []string{key, behind}) {
		t.Errorf("left: %v", left)
	}
}
