package holdtimes_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/clustermutex/unlocker/internal/cli/holdtimes"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

const (
	s = time.Second
	m = time.Minute
)

var epoch = time.Unix(1_700_000_000, 0).UTC()

// story creates revisions. Its unlocker writes when tick is called, and its holders' clocks are an hour ahead.
type story struct {
	*testing.T
	*holdtimes.Past
	l        protocol.Layout
	revision int64
	now      time.Time
	holds    int
}

func tell(t *testing.T) *story {
	l := protocol.DefaultLayout()
	return &story{T: t, Past: holdtimes.New(l), l: l, revision: 100, now: epoch}
}

func (w *story) put(key, value string) protocol.Event {
	return protocol.Event{KV: protocol.KV{Key: key, Value: []byte(value), CreateRevision: w.revision + 1,
		ModRevision: w.revision + 1}}
}

func (w *story) del(key string) protocol.Event {
	e := w.put(key, "")
	e.Deleted = true
	return e
}

func (w *story) commit(events ...protocol.Event) {
	w.revision++
	w.Apply(w.revision, events)
}

func (w *story) tick(unlocker string, after time.Duration) {
	w.now = w.now.Add(after)
	w.commit(w.put(w.l.Unlocker(unlocker), fmt.Sprintf(`{"now":"%d"}`, w.now.Unix())))
}

func (w *story) clock() time.Time { return w.now.Add(time.Hour) }

func (w *story) take(lock string, more ...protocol.Event) string {
	w.holds++
	uuid := fmt.Sprintf("11111111-2222-4333-8444-%012d", w.holds)
	w.commit(append(w.record(lock, uuid), more...)...)
	return uuid
}

func (w *story) record(lock, uuid string) []protocol.Event {
	at := func(d time.Duration) string { return metadata.FormatTime(w.clock().Add(d)) }
	return []protocol.Event{w.put(w.l.Field(lock, "uuid"), uuid), w.put(w.l.Field(lock, "alert_at"), at(m)),
		w.put(w.l.Field(lock, "auto_unlock_at"), at(2*m)), w.put(w.l.Field(lock, "locked_at"), at(0))}
}

func (w *story) release(lock string, more ...protocol.Event) {
	w.commit(append([]protocol.Event{w.del(w.l.Field(lock, "alert_at")), w.del(w.l.Field(lock, "uuid"))}, more...)...)
}

// held is a whole hold between two ticks of an unlocker.
func (w *story) held(lock string, d time.Duration) {
	w.tick("a", 0)
	w.take(lock)
	w.tick("a", d)
	w.release(lock)
	w.tick("a", 0)
}

func (w *story) lock(name string) *holdtimes.Lock {
	w.Helper()
	for _, l := range w.Locks(w.now) {
		if l.Name == name {
			return l
		}
	}
	w.Fatalf("nothing is known of %s", name)
	return nil
}

// is compares the summary of a lock's hold times.
func (w *story) is(name string) string {
	w.Helper()
	l := w.lock(name)
	return fmt.Sprintf("in %v held %v, max %v, after %v; alert after %v, end after %v; %d by others, %d unmeasured",
		w.Span(), l.Held, l.Longest, l.LongestWait, l.AlertAfter, l.AutoUnlockAfter, l.EndedByOthers,
		l.Unmeasured)
}

func TestLockDetails(t *testing.T) {
	const joined = `{"uuid":"11111111-2222-4333-8444-000000000002","since":"1700003600"` // by the waiter's clock
	for name, c := range map[string]struct {
		story func(w *story)
		want  string
	}{
		"a hold lasts from the tick before it to the tick after it": {func(w *story) {
			w.tick("a", 0)
			w.take("backup")
			w.tick("a", s) // the first that knows of the hold
			w.tick("a", 10*s)
			w.release("backup")
			w.tick("a", s)
		}, "in 12s held [12s], max 12s, after 0s; alert after 1m0s, end after 2m0s; 0 by others, 0 unmeasured"},
		"the clock that tells the times apart best counts": {func(w *story) {
			w.tick("a", 0)
			w.now = w.now.Add(5 * m) // another unlocker, with a clock that is ahead
			w.tick("b", 0)
			w.take("backup")
			w.tick("b", 10*s)
			w.release("backup")
			w.tick("b", s)
			w.tick("a", 0)
		}, "in 5m11s held [11s], max 11s, after 0s; alert after 1m0s, end after 2m0s; 0 by others, 0 unmeasured"},
		"what ended before the first tick is not measured": {func(w *story) {
			w.take("backup")
			w.release("backup")
			w.tick("a", s)
		}, "in 0s held [], max 0s, after 0s; alert after 1m0s, end after 2m0s; 0 by others, 1 unmeasured"},
		"nor is what began after the last": {func(w *story) {
			w.tick("a", s)
			w.take("backup")
			w.release("backup")
		}, "in 0s held [], max 0s, after 0s; alert after 1m0s, end after 2m0s; 0 by others, 1 unmeasured"},
		"what still lasts counts as longest": {func(w *story) {
			w.tick("a", 0)
			w.take("backup")
			w.commit(w.put(w.l.Ticket("backup", "t"), joined+"}"))
			w.tick("a", m)
		}, "in 1m0s held [], max 1m0s, after 1m0s; alert after 1m0s, end after 2m0s; 0 by others, 0 unmeasured"},
		"a wait is read from the waiter's clock": {func(w *story) {
			ticket := w.l.Ticket("backup", "11111111-2222-4333-8444-000000000002")
			w.tick("a", 0)
			w.take("backup")
			w.commit(w.put(ticket, joined+"}"))
			w.tick("a", 5*m)
			w.release("backup")
			w.take("backup", w.put(ticket, joined+`,"holding":true}`))
			w.tick("a", 3*m)
		}, "in 8m0s held [8m0s], max 8m0s, after 5m0s; alert after 1m0s, end after 2m0s; 0 by others, 0 unmeasured"},
		"who gives up has waited": {func(w *story) {
			w.Joined(&metadata.Waiter{Ticket: metadata.Ticket{UUID: "t", Since: metadata.Time{Time: epoch.Add(-m)}},
				Lock: "backup", ID: "t"})
			w.tick("a", 0)
			w.commit(w.put(w.l.Ticket("backup", "u"), `{"uuid":"u"}`))
			w.tick("a", s)
			w.commit(w.del(w.l.Ticket("backup", "t")))
			w.tick("a", s)
			w.commit(w.del(w.l.Ticket("backup", "u")))
			w.tick("a", s)
		}, "in 3s held [], max 0s, after 1m2s; alert after 0s, end after 0s; 0 by others, 0 unmeasured"},
		"a hold that somebody else ended is not measured": {func(w *story) {
			w.tick("a", 0)
			uuid := w.take("backup")
			w.tick("a", 2*m)
			w.release("backup", w.put(w.l.History(uuid), "{}"))
			w.tick("a", s)
		}, "in 2m1s held [], max 0s, after 0s; alert after 1m0s, end after 2m0s; 1 by others, 0 unmeasured"},
		"a hold from before began when its holder says": {func(w *story) {
			w.Began(&metadata.Record{Name: "backup#2", UUID: "u", Token: 7, LockedAt: epoch.Add(-3 * time.Hour),
				AlertAt: epoch, Attributes: map[string]any{metadata.AttributeKind: metadata.HoldsShared}})
			w.Began(&metadata.Record{Name: "free"}) // a record without a uuid
			w.tick("a", 0)
			w.release("backup#2")
			w.tick("a", s)
		}, "in 1s held [3h0m1s], max 3h0m1s, after 0s; alert after 3h0m0s, end after 0s; 0 by others, 0 unmeasured"},
	} {
		t.Run(name, func(t *testing.T) {
			w := tell(t)
			c.story(w)
			if got := w.is("backup"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if all := w.Locks(w.now); len(all) != 1 {
				t.Errorf("%d locks", len(all))
			}
		})
	}
}

func TestSuggestions(t *testing.T) {
	for name, test := range map[string]struct {
		hold          func(w *story, i int)
		alert, unlock time.Duration
	}{
		"short holds": {func(w *story, _ int) { w.held("a", s) }, 30 * s, m},
		"of all holds but the longest in a hundred": {func(w *story, i int) {
			w.held("a", map[bool]time.Duration{true: 20 * m, false: 4 * m}[i == 50])
		}, 8 * m, 40 * m},
		"long holds": {func(w *story, _ int) { w.held("a", 37*m) }, 75 * m, 3*time.Hour + 15*m},
		"a holder that calls alive": {func(w *story, _ int) {
			w.tick("a", 0)
			w.take("a")
			for range 10 {
				w.tick("a", m)
				w.commit(w.put(w.l.Field("a", "alert_at"), ""), w.put(w.l.Field("a", "auto_unlock_at"), ""))
				w.tick("a", 0)
			}
			w.tick("a", 0)
			w.release("a")
			w.tick("a", 0)
		}, 2 * m, 5 * m},
		"somebody else gives time": {func(w *story, _ int) {
			w.tick("a", 0)
			w.take("a")
			w.tick("a", 4*m)
			w.commit(w.put(w.l.Field("a", "alert_at"), ""), w.put(w.l.Field("a", "auto_unlock_at"), ""),
				w.put(w.l.Field("a", "extended"), "{}"))
			w.tick("a", 2*m)
			w.release("a")
			w.tick("a", 0)
		}, 15 * m, 30 * m},
		"a heartbeat": {func(w *story, _ int) {
			w.tick("a", 0)
			w.take("a")
			w.tick("a", 20*s)
			w.commit(w.put(w.l.Field("a", "auto_unlock_at"), ""))
			w.tick("a", 20*s)
			w.release("a")
			w.tick("a", 0)
		}, 2 * m, 0},
	} {
		w := tell(t)
		for i := range 100 {
			test.hold(w, i)
		}
		got, ok := w.lock("a").Suggest()
		if want := (holdtimes.Suggestion{AlertAfter: test.alert, AutoUnlockAfter: test.unlock}); !ok || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, ok, want)
		}
	}
}

func TestTooFewHoldsSuggestNothing(t *testing.T) {
	w := tell(t)
	for i := range holdtimes.MinHolds {
		if _, ok := w.lockOrNothing("a").Suggest(); ok {
			t.Fatalf("%d holds are enough", i)
		}
		w.held("a", m)
	}
	if _, ok := w.lock("a").Suggest(); !ok {
		t.Errorf("%d holds are too few", holdtimes.MinHolds)
	}
}

func (w *story) lockOrNothing(name string) *holdtimes.Lock {
	if w.holds == 0 {
		return &holdtimes.Lock{}
	}
	return w.lock(name)
}

func TestPercentiles(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(i+1))
	}
	for percent, want := range map[int]time.Duration{50: 100, 95: 190, 99: 198, 100: 200} {
		if got := holdtimes.Percentile(times, percent); got != want {
			t.Errorf("the %dth is %d, want %d", percent, got, want)
		}
	}
	if got := holdtimes.Percentile(times[:1], 50); got != 1 {
		t.Errorf("of one: %d", got)
	}
}

func TestHostileKeysCrashNothing(t *testing.T) {
	w := tell(t)
	for _, e := range []protocol.Event{w.put(w.l.Unlocker("a"), "{"), w.put(w.l.Unlocker("a"), `{"now":7}`),
		w.put(w.l.Ticket("x", "y"), "["), w.del(w.l.Ticket("x", "z")), w.del(w.l.Field("x", "uuid")),
		w.put(w.l.Field("x", "alert_at"), "soon"), w.put(w.l.Prefix()+"%", ""), w.put("/", "")} {
		w.commit(e)
	}
	w.commit(w.put(w.l.Field("x", "uuid"), "not one"))
	w.commit(w.put(w.l.Field("x", "uuid"), "another, though the first was not deleted"))
	w.release("x")
	if l := w.lock("x"); l.Unmeasured != 1 || l.AlertAfter != 0 {
		t.Errorf("%+v", l)
	}
}
