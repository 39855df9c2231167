package lockview_test

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// ending is a call of Options.Ended.
type ending struct {
	lock, uuid string
	how        string // "" = released, or nobody could tell
}

func TestEndedHolds(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "before", uuid(1))...)
		var ended []ending
		src := w.source()
		src.Ending = func(_ context.Context, id string) (*metadata.Ending, error) {
			return &metadata.Ending{UUID: id, Cause: metadata.EndingForced}, nil
		}
		v := run(t, src, lockview.Options{OnEnded: func(r *metadata.Record, e *metadata.Ending) {
			how := ""
			if e != nil {
				how = e.Cause
			}
			ended = append(ended, ending{r.Name, r.UUID, how})
		}})
		synctest.Wait()
		history := func(name, uuid, how string) op {
			r := &metadata.Record{Name: name, UUID: uuid}
			return put(layout.History(uuid),
				protocol.Marshal(lockrecord.NewEnding(r, how, "u1", "because", time.Unix(0, 0))))
		}
		w.do(lock(t, "a", uuid(2))...)
		w.do(lock(t, "b", uuid(3))...)
		w.do(lock(t, "c", uuid(4))...)
		w.do(put(layout.Field("nobody", lockrecord.FieldOwner), "x"))
		w.do(removeAll(layout.Record("before")))
		w.do(removeAll(layout.Record("a")), history("a", uuid(2), metadata.EndingAutoUnlocked))
		w.do(removeAll(layout.Record("b")), history("c", uuid(4), metadata.EndingForced), removeAll(layout.Record("c")))
		w.do(removeAll(layout.Record("nobody")))
		w.do(lock(t, "d", uuid(5))...)
		w.do(put(layout.Field("d", lockrecord.FieldAlive), "1553682600")) // no end
		w.do(put(layout.Field("d", lockrecord.FieldUUID), uuid(6)))       // an end, though of a strange kind
		synctest.Wait()
		want := []ending{{"before", uuid(1), ""}, {"a", uuid(2), "auto_unlocked"}, {"b", uuid(3), ""},
			{"c", uuid(4), "forced"}, {"d", uuid(5), ""}}
		if !slices.Equal(ended, want) {
			t.Errorf("ended:\n%v\nwant\n%v", ended, want)
		}
		if locks := v.Locks(); len(locks) != 1 || !reflect.DeepEqual(v.Lock("d"), locks[0]) || v.Lock("a") != nil {
			t.Errorf("left: %v", locks)
		}
		w.setDeaf(true) // an end that nobody watches
		w.do(removeAll(layout.Record("d")))
		w.cut()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(ended); n != 6 || ended[5] != (ending{"d", uuid(6), "forced"}) {
			t.Errorf("ended unwatched: %v", ended)
		}
	})
}

func TestUnchangedSnapshotReusesItsSlices(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "a", uuid(1))...)
		w.do(lock(t, "b", uuid(2))...)
		v := run(t, w.source(), lockview.Options{})
		synctest.Wait()
		locks := v.Locks()
		queues := v.Queues()
		changed := v.Changed()
		w.do(put("/other", "")) // only a sign of life
		synctest.Wait()
		if again := v.Locks(); &again[0] != &locks[0] || v.Changed() != changed {
			t.Error("nothing changed, but the locks are others")
		}
		copied := *locks[1]
		w.do(put(layout.Field("b", lockrecord.FieldAlive), "1553682600 half done"), put(layout.Ticket("b", "1"), "{}"))
		synctest.Wait()
		select {
		case <-changed:
		default:
			t.Error("a change did not wake its waiters")
		}
		now := v.Locks()
		if !reflect.DeepEqual(*locks[1], copied) || now[1] == locks[1] || now[0] != locks[0] {
			t.Error("a record that was handed out was written to, or one that did not change was replaced")
		}
		if now[1].Alive == nil || now[1].Alive.Progress != "half done" || len(queues) != 0 ||
			len(v.Queues()["b"]) != 1 {
			t.Errorf("%+v, %v", now[1], v.Queues())
		}
	})
}

func TestSeenTimes(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "kept", uuid(1))...)
		w.do(lock(t, "extended", uuid(2))...)
		w.do(lock(t, "replaced", uuid(3))...)
		v := run(t, w.source(), lockview.Options{})
		seen := func(lock string) metadata.Seen { synctest.Wait(); return v.Lock(lock).Seen }
		began := seen("kept")
		time.Sleep(time.Minute)
		w.do(put(layout.Field("extended", lockrecord.FieldAlive), "1553682600"))
		if s := seen("extended"); s.First != began.First || s.Changed-s.First != time.Minute {
			t.Errorf("after an extension: %+v, began %+v", s, began)
		}
		extended := seen("extended")

		time.Sleep(time.Minute)
		w.cut()
		time.Sleep(10 * time.Second)
		if s := seen("kept"); s != began || seen("extended") != extended {
			t.Errorf("a list without changes moved %+v to %+v and %+v", began, s, seen("extended"))
		}
		w.setDeaf(true)
		w.do(put(layout.Field("extended", lockrecord.FieldAlive), "1553682601"))
		w.do(removeAll(layout.Record("replaced")))
		w.do(lock(t, "replaced", uuid(4))...)
		w.cut()
		time.Sleep(10 * time.Second)
		now := v.Clock()
		if s := seen("extended"); s.First != extended.First || now-s.Changed > 10*time.Second {
			t.Errorf("extended without a watch: %+v at %v", s, now)
		}
		if s := seen("replaced"); s.First != s.Changed || now-s.First > 10*time.Second ||
			v.Lock("replaced").UUID != uuid(4) {
			t.Errorf("replaced without a watch: %+v at %v", s, now)
		}
		if seen("kept") != began {
			t.Errorf("kept: %+v, began %+v", seen("kept"), began)
		}
	})
}

func TestWatchedWritesGetTheirArrivalTime(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "listed", uuid(1))...)
		v := run(t, w.source(), lockview.Options{})
		seen := func(lock string) metadata.Seen { synctest.Wait(); return v.Lock(lock).Seen }
		alive := func(lock string, at int) {
			w.do(put(layout.Field(lock, lockrecord.FieldAlive), fmt.Sprint(1553682600+at)))
		}
		arrived := func(lock string, at, followed time.Duration) {
			t.Helper()
			if s := seen(lock); s.Arrived != at || s.Followed != followed {
				t.Errorf("%s arrived at %v, followed since %v, want %v and %v", lock, s.Arrived, s.Followed, at,
					followed)
			}
		}
		arrived("listed", 0, 0)
		time.Sleep(time.Minute)
		w.do(lock(t, "watched", uuid(2))...)
		alive("listed", 1)
		arrived("watched", time.Minute, 0)
		arrived("listed", time.Minute, 0)

		time.Sleep(time.Minute)
		w.do(put(layout.Field("watched", "note"), "nothing of the holder's clock"))
		w.do(put(layout.Field("watched", lockrecord.FieldAutoUnlockAt), "1653682600"))
		arrived("watched", time.Minute, 0)

		w.setDeaf(true)
		alive("listed", 2)
		w.cut()
		time.Sleep(10 * time.Second)
		w.setDeaf(false)
		arrived("watched", time.Minute, 0)
		arrived("listed", 0, 0)
		alive("listed", 3)
		if s := seen("listed"); s.Arrived != v.Clock() || s.Followed <= 2*time.Minute || s.Followed > s.Arrived {
			t.Errorf("after a break: %+v at %v", s, v.Clock())
		}
		w.do(removeAll(layout.Record("watched")))
		w.do(lock(t, "watched", uuid(3))...)
		if s := seen("watched"); s.Arrived != v.Clock() {
			t.Errorf("a hold after another: %+v at %v", s, v.Clock())
		}
	})
}

func TestTicketSeenSince(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		ticket := func(since string) op { return put(layout.Ticket("a", "t"), `{"uuid":"t","since":"`+since+`"}`) }
		seen := func(v *lockview.View, want time.Duration) {
			t.Helper()
			synctest.Wait()
			if of := v.Queues()["a"]; len(of) != 1 || of[0].Seen != want {
				t.Errorf("%+v, want one that was seen at %v", of, want)
			}
		}
		w.do(ticket("1553682600"))
		v := run(t, w.source(), lockview.Options{})
		seen(v, 0)
		time.Sleep(time.Minute)
		w.do(ticket("1553682600"))
		seen(v, 0)
		w.do(ticket("1553682601"))
		seen(v, time.Minute)
		time.Sleep(time.Minute)
		w.cut()
		time.Sleep(10 * time.Second)
		seen(v, time.Minute)
		w.do(remove(layout.Ticket("a", "t")))
		w.do(ticket("1553682601"))
		seen(v, v.Clock())
	})
}

// A record with a long lease, or without one, must not count as a running unlocker.
func TestStalePresenceRecords(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		write := func(id string) {
			w.do(put(layout.Unlocker(id), protocol.Marshal(metadata.Presence{ID: id, Revision: w.now(),
				Now: metadata.Time{Time: time.Now()}})))
		}
		w.do(put(layout.Unlocker("junk"), "not json"))
		write("left")
		v := run(t, w.source(), lockview.Options{RelistEvery: 20 * time.Second})
		check := func(when string, running ...string) {
			t.Helper()
			synctest.Wait()
			is := func(u metadata.Presence, id string) bool { return u.ID == id }
			if got := v.Unlockers(); !slices.EqualFunc(got, running, is) {
				t.Errorf("%s: %+v", when, got)
			}
		}
		check("after the list nobody knows how old the record is", "left")
		if u := v.Unlockers()[0]; !u.ArrivedAt.IsZero() {
			t.Errorf("when a listed record arrived is said: %+v", u)
		}
		for range 30 {
			time.Sleep(time.Second)
			write("u1")
		}
		synctest.Wait()
		if u := v.Unlockers()[0]; !u.ArrivedAt.Equal(time.Now()) || u.Revision != w.now()-1 {
			t.Errorf("the newest record is %+v", u)
		}
		check("though a list was compared with, only one still writes", "u1")
		w.do(put(layout.Unlocker("junk"), "not json either"), op{key: layout.Unlocker("by hand"), unleased: true,
			value: protocol.Marshal(metadata.Presence{Now: metadata.Time{Time: time.Now()}})})
		check("what cannot be read is none", "u1")
		w.cut()
		time.Sleep(5 * time.Second)
		check("after an interruption all count for a while, as they may have written meanwhile", "left", "u1")
		time.Sleep(20 * time.Second)
		check("while nothing is heard from etcd nobody is given up", "left", "u1")
		w.do(put(layout.Field("a", "note"), "a sign of life"))
		check("etcd is there, and nobody writes any more")
		write("u2")
		check("another one", "u2")
		w.do(remove(layout.Unlocker("u2")))
		check("one that ended")
	})
}

// heap returns how much memory is in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestHostileLocksAreKeptSmall(t *testing.T) {
	const locks = 10
	w := newWorld()
	big := strings.Repeat("x", 1<<20)
	for i := range locks {
		name := fmt.Sprint(i)
		w.do(put(layout.Field(name, lockrecord.FieldUUID), uuid(i)),
			put(layout.Field(name, fields[i%len(fields)]), big))
		w.do(put(layout.Field(name, lockrecord.FieldMetadata), `{"owner":"`+big+`","x":["`+big+`"],"`+big+`":1}`))
		w.do(put(layout.Ticket(name, "1"), `{"owner":"`+big+`"}`),
			put(layout.Unlocker(name), `{"mode":"`+big+`","held_back":["`+big+`"]}`))
		w.do(put(layout.Prefix()+big+name, ""), put(layout.Record(name)+big, ""))
	}
	before := heap()
	v := run(t, w.source(), lockview.Options{})
	settle(t, v, w)
	if n := (heap() - before) / locks; n > 64<<10 {
		t.Errorf("after a list %d bytes are kept of a lock with megabytes", n)
	}
	for i := range locks {
		w.do(put(layout.Field(fmt.Sprint(i), "note"), big))
		settle(t, v, w)
		w.mu.Lock() // only the view is to be measured
		w.told[len(w.told)-1].events, w.kvs[layout.Field(fmt.Sprint(i), "note")] = nil, protocol.KV{}
		w.mu.Unlock()
	}
	if n := (heap() - before) / locks; n > 64<<10 {
		t.Errorf("after a change %d bytes are kept of a lock with megabytes", n)
	}
	runtime.KeepAlive(w)
}

func TestLockWithTensOfThousandsOfFields(t *testing.T) {
	w := newWorld()
	w.do(lock(t, "a", uuid(1))...)
	for i := range 100 {
		var ops []op
		for j := range 300 {
			ops = append(ops, put(layout.Field("a", fmt.Sprintf("f%d_%d", i, j)), strings.Repeat("x", 500)))
		}
		w.do(ops...)
	}
	before := heap()
	v := run(t, w.source(), lockview.Options{})
	settle(t, v, w)
	for range 2 {
		r := v.Lock("a")
		if r.UUID != uuid(1) || r.Owner != "billing" || len(r.Attributes) != lockrecord.MaxAttributes || r.Malformed() {
			t.Fatalf("%+v", r)
		}
		large := func(p metadata.Problem) bool { return p.Field == "record" && p.Kind == metadata.ProblemTooLarge }
		if !slices.ContainsFunc(r.Problems, large) {
			t.Errorf("problems: %v", r.Problems)
		}
		w.do(put(layout.Field("a", lockrecord.FieldAlive), "1553682600"), put(layout.Field("a", "g"), "1"),
			remove(layout.Field("a", "f99_299")))
		settle(t, v, w)
	}
	w.do(put(layout.Field("a", lockrecord.FieldAsked),
		protocol.Marshal(metadata.FinishRequest{UUID: uuid(1), Token: v.Lock("a").Token, By: "ann"})),
		put(layout.Field("a", "pod_uid"), "5e9a2a3c"))
	settle(t, v, w)
	if n := heap() - before; n > 512<<10 {
		t.Errorf("%d bytes are kept", n)
	}
	listed := run(t, w.source(), lockview.Options{})
	settle(t, listed, w)
	for _, v := range []*lockview.View{v, listed} {
		if r := v.Lock("a"); r.FinishRequest == nil || r.Process == nil || r.Process.PodUID != "5e9a2a3c" {
			t.Errorf("members other than attributes were dropped, too: asked %+v, process %+v", r.FinishRequest,
				r.Process)
		}
	}
	w.do(removeAll(layout.Record("a")))
	settle(t, v, w)
	if v.Lock("a") != nil {
		t.Errorf("still there: %+v", v.Lock("a"))
	}
	runtime.KeepAlive(w)
}

// The witness of one machine needs only a few locks.
func TestFilteredViewKeepsNothingElse(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		ours := func(d *lockrecord.Draft) { d.Hostname = "ours" }
		w.do(lock(t, "a", uuid(1), ours)...)
		w.do(lock(t, "b", uuid(2))...)
		rest := []op{put(layout.Ticket("a", "1"), "{}"), put(layout.Unlocker("u"), "{}"), put(layout.Prefix()+"x", ""),
			put(layout.Delay("b"), "{}"), put(layout.Record("a")+"x/y", ""), put(layout.Prefix()+"50%/uuid", uuid(9))}
		w.do(rest...)
		v := run(t, w.source(), lockview.Options{RelistEvery: time.Minute, Keep: func(fields []metadata.Field) bool {
			return slices.ContainsFunc(fields, func(f metadata.Field) bool { return strings.Contains(f.Value, "ours") })
		}})
		want := func(when string, locks ...string) {
			t.Helper()
			synctest.Wait()
			_, foreign, _ := v.Foreign()
			if got := placesOf(v.RecordsWithMisplaced()); !slices.Equal(got, locks) ||
				len(v.Queues())+len(v.Delays())+foreign != 0 {
				t.Errorf("%s: %v, %v, %v, %d foreign keys", when, got, v.Queues(), v.Delays(), foreign)
			}
		}
		want("listed", "a")
		changed := v.Changed()
		w.do(lock(t, "c", uuid(3))...)
		w.do(alive("b", 1)...)
		w.do(removeAll(layout.Record("b")))
		w.do(rest...)
		want("what others do", "a")
		if v.Changed() != changed {
			t.Error("an unrelated event is reported as a change")
		}
		w.do(lock(t, "d", uuid(4), ours)...)
		want("taken", "a", "d")
		w.do(alive("d", 1)...)
		w.do(stated(death(t, w, "d")), stated(death(t, w, "c")))
		compared(t, v, w)
		if r := v.Lock("d"); !r.ProvenDead() || r.Alive == nil {
			t.Errorf("%+v", r)
		}
		w.do(removeAll(layout.Record("a")))
		want("released", "d")
	})
}
