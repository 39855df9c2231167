package lockview_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/lockview"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// reason is an error of a watch with a reason.
type reason string

func (r reason) Error() string  { return "the watch ended: " + string(r) }
func (r reason) Reason() string { return string(r) }

func TestRetriesBackOff(t *testing.T) {
	for name, c := range map[string]struct {
		list, watch error
		cause       string
	}{
		"of the list":                          {errors.New("connection refused"), nil, "connection refused"},
		"of the watch, right after each list":  {nil, reason("compacted"), "compacted"},
		"of the watch, for a reason not known": {nil, errors.New("cosmic rays"), "cosmic rays"},
	} {
		t.Run(name, simulated(func(t *testing.T, w *world) {
			var lists atomic.Int64
			src := lockview.Source{
				List: func(ctx context.Context, each func(protocol.KV)) (int64, error) {
					if lists.Add(1); c.list != nil {
						return 0, c.list
					}
					return w.list(ctx, each)
				},
				Watch: func(context.Context, string, int64, func(int64, []protocol.Event)) error { return c.watch },
			}
			v := run(t, src, lockview.Options{})
			time.Sleep(time.Second)
			synctest.Wait()
			if n := lists.Load(); n < 3 || n > 8 {
				t.Errorf("%d lists in the first second", n)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if n := lists.Load(); n < 12 || n > 35 {
				t.Errorf("%d lists in a minute", n)
			}
			if f := v.Fresh(); f.Synced || !strings.Contains(f.Cause, c.cause) ||
				f.HeardAt.IsZero() != (c.list != nil) {
				t.Errorf("%+v", f)
			}
		}))
	}
}

func TestFreshness(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "a", uuid(1))...)
		hang := make(chan struct{})
		broken := make(chan struct{})
		src := w.source()
		src.Watch = func(ctx context.Context, prefix string, after int64, each func(int64, []protocol.Event)) error {
			time.Sleep(2 * time.Second)
			each(after, nil)
			select {
			case <-broken:
				return reason("silent")
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		list := src.List
		src.List = func(ctx context.Context, each func(protocol.KV)) (int64, error) {
			<-hang
			return list(ctx, each)
		}
		var class, fault string
		v := lockview.New(layout, src,
			lockview.Options{Explain: func(err error) string { return "explained: " + err.Error() },
				Fault: func() (string, string) { return class, fault }})
		wantReady := func(listed, synced string) {
			t.Helper()
			if l, s := fmt.Sprint(v.CheckListed()), fmt.Sprint(v.CheckSynced()); l != listed || s != synced {
				t.Errorf("the conditions of readiness are %s and %s", l, s)
			}
		}
		if f := v.Fresh(); f.Synced || f.Cause != "the first list is not done" || !f.HeardAt.IsZero() ||
			f.Revision != 0 {
			t.Errorf("at the beginning: %+v", f)
		}
		wantReady("not read yet: the first list is not done", "<nil>")
		proctest.Go(t, v.Run)
		hang <- struct{}{}
		synctest.Wait()
		read := time.Now()
		if f := v.Fresh(); !f.Synced || f.Cause != "" || f.Revision != 2 || f.HighestRevision != 2 ||
			!f.SyncedChangedAt.Equal(read) || !f.HeardAt.Equal(read) {
			t.Errorf("after the list: %+v", f)
		}
		wantReady("<nil>", "<nil>")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		heard := time.Now()
		time.Sleep(10 * time.Second)
		if f := v.Fresh(); !f.Synced || !f.HeardAt.Equal(heard) {
			t.Errorf("after ten seconds of silence: %+v", f)
		}
		time.Sleep(time.Second)
		f := v.Fresh()
		if f.Synced || !f.SyncedChangedAt.Equal(heard.Add(10*time.Second)) || !strings.Contains(f.Cause, "11s") {
			t.Errorf("after eleven: %+v", f)
		}
		changed := v.Changed()
		close(broken)
		<-changed
		if f := v.Fresh(); f.Synced || f.Cause != "explained: the watch ended: silent" || len(v.Locks()) != 1 {
			t.Errorf("after the end of the watch: %+v", f)
		}
		class, fault = "permission", "etcd refused"
		if f := v.Fresh(); f.Class != class || f.Cause != fault {
			t.Errorf("with a known fault: %+v", f)
		}
		wantReady("<nil>", "the view of the locks is not current: etcd refused")
		hang <- struct{}{}
		synctest.Wait()
		if f := v.Fresh(); !f.Synced || f.Cause != "" {
			t.Errorf("after the next list: %+v", f)
		}
		if s := v.Stats(); s.Resyncs[lockview.ReasonStart] != 1 || s.Resyncs["silent"] != 1 ||
			s.WatchRestarts["silent"] != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// The next periodic list finds events that were lost.
func TestLostEventsAreCorrected(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "kept", uuid(1))...)
		w.do(lock(t, "gone", uuid(2))...)
		w.do(lock(t, "extended", uuid(3))...)
		w.do(lock(t, "dead", uuid(5))...)
		w.do(put(layout.Ticket("kept", "1"), "{}"), put(layout.Ticket("kept", "2"), "{}"),
			put(layout.Prefix()+"stray", ""))
		src := w.source()
		src.Ending = func(_ context.Context, id string) (*metadata.Ending, error) {
			if id != uuid(2) {
				t.Errorf("asked how %s ended", id)
			}
			return &metadata.Ending{UUID: id, Cause: metadata.EndingForced}, nil
		}
		var ended []ending
		var d died
		v := run(t, src, lockview.Options{RelistEvery: 5 * time.Minute, OnHolderDied: d.add,
			OnEnded: func(r *metadata.Record, e *metadata.Ending) {
				ended = append(ended, ending{r.Name, r.UUID, e.Cause})
			}})
		synctest.Wait()
		unchanged := viewed(v, "kept")
		w.setDeaf(true)
		w.do(removeAll(layout.Record("gone")), put(layout.Field("extended", lockrecord.FieldAlive), "1553682600"),
			remove(layout.Ticket("kept", "1")), stated(death(t, w, "dead")))
		w.do(lock(t, "new", uuid(4))...)
		w.do(remove(layout.Prefix()+"stray"), put(layout.Record("new")+"x/y", ""))
		w.setDeaf(false)
		w.live(4 * time.Minute)
		if v.Lock("gone") == nil || v.Lock("new") != nil {
			t.Fatal("the events were not lost")
		}
		w.live(70 * time.Second)
		differ(t, "healed", show(v), w.truth())
		if viewed(v, "kept") != unchanged {
			t.Error("a record that did not change was replaced")
		}
		if !slices.Equal(ended, []ending{{"gone", uuid(2), "forced"}}) {
			t.Errorf("ended: %v", ended)
		}
		d.want(t, "dead")
		if s := v.Stats(); s.Corrected != 4 || s.Resyncs[lockview.ReasonPeriodic] != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// The watch continues while the list for the comparison runs, and its events count.
func TestCorrectionKeepsConcurrentChanges(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(lock(t, "a", uuid(1))...)
		w.do(lock(t, "b", uuid(2))...)
		w.do(lock(t, "dead", uuid(4))...)
		w.do(lock(t, "spared", uuid(5))...)
		w.do(stated(death(t, w, "spared")))
		src := w.source()
		lists := 0
		src.List = func(ctx context.Context, each func(protocol.KV)) (int64, error) {
			var kvs []protocol.KV
			revision, err := w.list(ctx, func(kv protocol.KV) { kvs = append(kvs, kv) })
			if lists++; lists == 2 { // the old state is long on its way
				w.do(removeAll(layout.Record("a")), put(layout.Ticket("b", "1"), "{}"),
					put(layout.Unlocker("u1"), "{}"), put(layout.Prefix()+"stray", ""))
				w.do(lock(t, "c", uuid(3))...)
				w.do(put(layout.Field("b", lockrecord.FieldAlive), "1553682600"))
				w.do(stated(death(t, w, "dead")), remove(layout.Death(uuid(5))))
				time.Sleep(time.Minute)
			}
			for _, kv := range kvs {
				each(kv)
			}
			return revision, err
		}
		v := run(t, src, lockview.Options{RelistEvery: time.Minute})
		w.live(150 * time.Second)
		if lists != 2 {
			t.Errorf("%d lists", lists)
		}
		differ(t, "after the comparison", show(v), w.truth())
		if s := v.Stats(); s.Corrected != 0 || s.Resyncs[lockview.ReasonPeriodic] != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// A list may be ahead of the watch.
func TestComparisonWaitsForTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		src := w.source()
		src.Watch = func(ctx context.Context, prefix string, after int64, each func(int64, []protocol.Event)) error {
			return w.watch(ctx, prefix, after, func(revision int64, events []protocol.Event) {
				time.Sleep(10 * time.Second)
				each(revision, events)
			})
		}
		v := run(t, src, lockview.Options{RelistEvery: time.Minute})
		for i := range 20 {
			time.Sleep(5 * time.Second)
			w.do(lock(t, fmt.Sprint("lock-", i), uuid(i+1))...)
		}
		time.Sleep(10 * time.Minute)
		w.do(put("/other", ""))
		time.Sleep(time.Minute)
		differ(t, "after the comparison", show(v), w.truth())
		if s := v.Stats(); s.Corrected != 0 || s.Resyncs[lockview.ReasonPeriodic] == 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The store was restored from a backup: revisions repeat, with other contents.
func TestRestoredStoreIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old := newWorld()
		old.do(lock(t, "a", uuid(1))...)
		backup := newWorld()
		backup.do(lock(t, "a", uuid(1))...)
		by := func(at string) []op {
			return []op{put(layout.Field("a", lockrecord.FieldAlertAt), at),
				put(layout.Field("a", lockrecord.FieldAutoUnlockAt), at)}
		}
		old.do(by("1553683000")...)
		for range 10 {
			old.do(put("/other", ""))
		}
		backup.do(by("1553684000")...) // at the same revision as in the old one
		now := old
		broken := make(chan struct{})
		src := lockview.Source{
			List: func(ctx context.Context, each func(protocol.KV)) (int64, error) { return now.list(ctx, each) },
			Watch: func(ctx context.Context, prefix string, after int64, each func(int64, []protocol.Event)) error {
				if now == old {
					<-broken
					return reason("went_back")
				}
				return now.watch(ctx, prefix, after, each)
			},
		}
		v := run(t, src, lockview.Options{})
		synctest.Wait()
		now = backup
		close(broken)
		time.Sleep(time.Second)
		f := v.Fresh()
		if !f.Synced || f.Revision != 3 || f.HighestRevision != 13 {
			t.Errorf("%+v", f)
		}
		if at := metadata.FormatTime(v.Lock("a").AutoUnlockAt); at != "1553684000" {
			t.Errorf("auto_unlock_at %s is not the restored one", at)
		}
		backup.do(by("1553685000")...)
		synctest.Wait()
		if at := metadata.FormatTime(v.Lock("a").AutoUnlockAt); at != "1553685000" {
			t.Errorf("auto_unlock_at %s: the view does not follow", at)
		}
	})
}

func TestProblemsAreCountedOnce(t *testing.T) {
	simulate(t, func(t *testing.T, w *world) {
		w.do(put(layout.Field("a", lockrecord.FieldUUID), uuid(1)),
			put(layout.Field("a", lockrecord.FieldAlertAt), "soon"),
			put(layout.Field("a", lockrecord.FieldAutoUnlockAt), "1553682600"))
		v := run(t, w.source(), lockview.Options{})
		synctest.Wait()
		w.do(put(layout.Field("a", lockrecord.FieldAlive), "1553682600")) // the problem is the same
		w.do(remove(layout.Field("a", lockrecord.FieldAutoUnlockAt)))
		w.do(put(layout.Field("\x01", lockrecord.FieldUUID), uuid(2)))
		synctest.Wait()
		s := v.Stats()
		for reason, want := range map[metadata.ProblemKind]uint64{
			metadata.ProblemBadTime: 1, metadata.ProblemMissing: 3, metadata.ProblemBadName: 1,
			metadata.ProblemTooLarge: 0,
		} {
			if got, known := s.MetadataErrors[reason]; got != want || !known {
				t.Errorf("%s: %d, want %d", reason, got, want)
			}
		}
		if s.Puts != 2 || s.Deletes != 1 {
			t.Errorf("%d puts, %d deletes", s.Puts, s.Deletes)
		}
	})
}

// Events are lost, watches are cut, lists happen at any time: the final snapshot is the same, and every hold ends once.
func TestInterruptionsYieldTheSameSnapshot(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			w := newWorld()
			p := &player{t: t, w: w, uuids: 1000}
			ended := map[string]int{}
			v := run(t, w.source(), lockview.Options{RelistEvery: 7 * time.Second,
				OnEnded: func(r *metadata.Record, _ *metadata.Ending) {
					// not one that was written over another
					if strings.HasPrefix(r.UUID, uuid(1000)[:30]) && r.UUID > uuid(1000) {
						ended[fmt.Sprint(r.Name, r.UUID, r.Token)]++
					}
				}})
			for range 150 {
				p.bytes = make([]byte, 60)
				for i := range p.bytes {
					p.bytes[i] = byte(random.Uint32())
				}
				p.turn()
				switch random.IntN(12) {
				case 0:
					w.cut()
				case 1:
					w.setDeaf(true)
				case 2, 3:
					w.setDeaf(false)
				case 4:
					time.Sleep(time.Duration(random.IntN(10_000)) * time.Millisecond)
				}
			}
			w.setDeaf(false)
			w.live(24 * time.Second) // long enough for a comparison
			differ(t, fmt.Sprintf("seed %d", seed), show(v), w.truth())
			for hold, n := range ended {
				if n > 1 {
					t.Errorf("seed %d: %q ended %d times", seed, hold, n)
				}
			}
		})
	}
}
