package mutex_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// request returns a request to the current holder of a record.
func request(doc metadata.Document, by, reason string) metadata.Request {
	return metadata.Request{UUID: doc.UUID, Token: doc.Token, By: by, Source: "cli", Reason: reason,
		At: metadata.Time{Time: time.Now()}}
}

// ask asks the holder of a record as an operator does.
func ask(t testing.TB, f *fake, record, by, reason string) {
	t.Helper()
	r := request(read(t, f.etcd, record), by, reason)
	f.put(layout(t).Field(record, metadata.FieldAsked), protocol.Marshal(r))
}

// isAsked reports whether the channel is closed after all goroutines have settled.
func isAsked(asked <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-asked:
		return true
	default:
		return false
	}
}

func TestHolderLearnsThatItIsAskedToFinish(t *testing.T) {
	var told []string
	o := mutex.Options{Hooks: mutex.Hooks{Asked: func(e mutex.Asked) {
		told = append(told, "hook "+e.Hold.Name()+" "+e.Request.By)
	}}}
	bubbleWith(t, o, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.OnAsked(func(r metadata.Request) { told = append(told, "option "+r.By) }))
		asked := l.Asked()
		time.Sleep(time.Second)
		if isAsked(asked) || l.Request() != nil || l.AskedError() != nil {
			t.Error("it was asked before anybody did")
		}
		before := time.Now()
		ask(t, f, "a", "ann", "the deploy waits")
		<-asked
		if took := time.Since(before); took != 0 {
			t.Errorf("it took %v", took)
		}
		if r := l.Request(); r == nil || r.By != "ann" || r.Reason != "the deploy waits" || r.Source != "cli" ||
			!r.At.Equal(before) {
			t.Errorf("the request is %+v", r)
		}
		time.Sleep(5 * time.Second)
		const says = `the holder of lock "a" was asked to finish by ann 5 seconds ago: the deploy waits`
		if err := l.AskedError(); err == nil || err.Error() != says {
			t.Errorf("got  %v\nwant %s", err, says)
		}
		ask(t, f, "a", "bob", "really")
		synctest.Wait()
		if r := l.Request(); r.By != "bob" || !isAsked(l.Asked()) || l.Context().Err() != nil {
			t.Errorf("after the second: %+v", r)
		}
		if got := strings.Join(told, ", "); got != "hook a ann, option ann, hook a bob, option bob" {
			t.Errorf("told %s", got)
		}
		unlock(t, l)
		if l.Request() == nil || !isAsked(l.Asked()) {
			t.Error("the end of the hold takes the request back")
		}
	})
}

func TestRequestIsSeenWheneverItWasWritten(t *testing.T) {
	bubbles(t, map[string]struct {
		after time.Duration
		deaf  bool
	}{"before the watch": {}, "while it watches": {time.Second, false}, "while its watch is out": {time.Second, true}},
		func(t *testing.T, f *fake, locks *mutex.Client, c struct {
			after time.Duration
			deaf  bool
		}) {
			l := take(t, locks, "a", mutex.AutoUnlockAfter(time.Hour))
			time.Sleep(c.after)
			f.deaf.Store(c.deaf)
			ask(t, f, "a", "ann", "now")
			time.Sleep(2 * time.Minute)
			if !isAsked(l.Asked()) {
				t.Error("it does not know")
			}
		})
}

func TestRequestThatIsNotForThisHoldIsIgnored(t *testing.T) {
	bubbles(t, map[string]func(*metadata.Request){
		"another uuid":  func(r *metadata.Request) { r.UUID = foreignUUID },
		"another token": func(r *metadata.Request) { r.Token++ },
		"huge":          func(r *metadata.Request) { r.Reason = strings.Repeat("x", metadata.MaxDocumentBytes) },
	}, func(t *testing.T, f *fake, locks *mutex.Client, change func(*metadata.Request)) {
		l := take(t, locks, "a")
		time.Sleep(time.Second)
		r := request(read(t, f.etcd, "a"), "ann", "now")
		change(&r)
		for _, value := range []string{protocol.Marshal(r), "", "ann", "[]", "{", `{"uuid":1}`} {
			f.put("/mutexes/a/asked", value)
			if isAsked(l.Asked()) {
				t.Errorf("it heeds %+v", l.Request())
			}
		}
		time.Sleep(2 * time.Minute)
		if isAsked(l.Asked()) {
			t.Errorf("it heeds %+v", l.Request())
		}
		ask(t, f, "a", "ann", "after all")
		if !isAsked(l.Asked()) {
			t.Error("it no longer heeds a good one")
		}
	})
}

func TestEveryHandleLearnsOfTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		r, err := locks.TryReserve(t.Context(), "a", "maintenance", time.Hour, mutex.Semaphore(3))
		if err != nil {
			t.Fatal(err)
		}
		ask(t, f, r.Lock, "bob", "before the adoption")
		l, err := locks.Adopt(t.Context(), r.Lock, r.UUID)
		if err != nil {
			t.Fatal(err)
		}
		if !isAsked(l.Asked()) || l.Request().By != "bob" {
			t.Errorf("what was asked before: %+v", l.Request())
		}
		unlock(t, l)
		outer := take(t, locks, "a")
		inner := enter(t, locks, outer)
		time.Sleep(time.Second)
		ask(t, f, "a", "ann", "now")
		for of, handle := range map[string]*mutex.Lock{"outer": outer, "inner": inner} {
			if !isAsked(handle.Asked()) || handle.Request().By != "ann" {
				t.Errorf("the %s handle: %+v", of, handle.Request())
			}
		}
	})
}

func TestLocksTakenTogetherAreAskedWhenOneIs(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		both := takeAll(t, locks, []string{"a", "b"})
		early := both.Asked()
		whole := mutex.FromContext(both.Context())
		time.Sleep(time.Second)
		if isAsked(early) || both.Request() != nil || isAsked(whole.Asked()) {
			t.Error("asked before anybody did")
		}
		ask(t, f, "b", "ann", "now")
		if !isAsked(early) || !isAsked(both.Asked()) || both.Request().By != "ann" || !isAsked(whole.Asked()) {
			t.Errorf("the request is %+v", both.Request())
		}
		if err := whole.AskedError(); err == nil || !strings.Contains(err.Error(), `lock "b" was asked`) {
			t.Errorf("the error is %v", err)
		}
		if all := both.All(); isAsked(all[0].Asked()) || !isAsked(all[1].Asked()) {
			t.Error("the handles of the locks mix up their requests")
		}
		late, err := locks.Lock(both.Context(), "a", mutex.Reentrant())
		if err != nil || !isAsked(late.Asked()) {
			t.Errorf("the inner handle is not asked: %v", err)
		}
		late.Unlock()
	})
}

// A holder that works in OnAsked must still learn of a loss at once.
func TestSlowOnAskedKeepsNothingBack(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		var told []string
		l := take(t, locks, "a", mutex.OnAsked(func(r metadata.Request) {
			time.Sleep(time.Minute)
			told = append(told, r.By)
		}))
		time.Sleep(time.Second)
		for i := range 5 {
			ask(t, f, "a", fmt.Sprint(i), "now")
			synctest.Wait()
		}
		began := time.Now()
		f.do(clientv3.OpDelete("/mutexes/a/uuid"))
		<-l.Lost()
		if took := time.Since(began); took > time.Second {
			t.Errorf("the loss was noticed after %v", took)
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := strings.Join(told, " "); got != "0 4" {
			t.Errorf("told %s, want the first and the latest", got)
		}
	})
}
