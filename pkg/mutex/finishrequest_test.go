package mutex_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// request returns a request to the current holder of a record.
func request(doc metadata.FullRecord, by, reason string) metadata.FinishRequest {
	return metadata.FinishRequest{UUID: doc.UUID, Token: doc.Token, By: by, Source: "cli", Reason: reason,
		At: metadata.Time{Time: time.Now()}}
}

// ask asks the holder of a record as an operator does.
func ask(t testing.TB, f *fake, record, by, reason string) {
	t.Helper()
	r := request(read(t, f.etcd, record), by, reason)
	f.put(layout(t).Field(record, lockrecord.FieldAsked), protocol.Marshal(r))
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
	o := mutex.Options{Hooks: mutex.Hooks{FinishRequested: func(e mutex.FinishRequested) {
		told = append(told, "hook "+e.Lock.Name()+" "+e.Request.By)
	}}}
	bubbleWith(t, o, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a", mutex.OnFinishRequest(func(r metadata.FinishRequest) {
			told = append(told, "option "+r.By)
		}))
		asked := l.FinishRequested()
		time.Sleep(time.Second)
		if isAsked(asked) || l.FinishRequest() != nil || l.FinishRequestError() != nil {
			t.Error("FinishRequested is closed before any request")
		}
		before := time.Now()
		ask(t, f, "a", "ann", "the deploy waits")
		if !isAsked(asked) {
			t.Fatal("it does not know")
		}
		if r := l.FinishRequest(); r.By != "ann" || r.Reason != "the deploy waits" || r.Source != "cli" ||
			!r.At.Equal(before) {
			t.Errorf("the request is %+v", r)
		}
		time.Sleep(5 * time.Second)
		const says = `the holder of lock "a" was asked to finish by ann 5 seconds ago: the deploy waits`
		if err := l.FinishRequestError(); err == nil || err.Error() != says {
			t.Errorf("got  %v\nwant %s", err, says)
		}
		ask(t, f, "a", "bob", "really")
		synctest.Wait()
		if r := l.FinishRequest(); r.By != "bob" || !isAsked(l.FinishRequested()) || l.Context().Err() != nil {
			t.Errorf("after the second: %+v", r)
		}
		if got := strings.Join(told, ", "); got != "hook a ann, option ann, hook a bob, option bob" {
			t.Errorf("told %s", got)
		}
		unlock(t, l)
		if l.FinishRequest() == nil || !isAsked(l.FinishRequested()) {
			t.Error("the end of the hold takes the request back")
		}
	})
}

func TestRequestIsSeenRegardlessOfTiming(t *testing.T) {
	bubbles(t, map[string]func(*fake){
		"before the watch":       func(*fake) {},
		"while it watches":       func(*fake) { time.Sleep(time.Second) },
		"while its watch is out": func(f *fake) { time.Sleep(time.Second); f.deaf.Store(true) },
	}, func(t *testing.T, f *fake, locks *mutex.Client, until func(*fake)) {
		l := take(t, locks, "a", mutex.AutoUnlockAfter(time.Hour))
		until(f)
		ask(t, f, "a", "ann", "now")
		time.Sleep(2 * time.Minute)
		if !isAsked(l.FinishRequested()) {
			t.Error("it does not know")
		}
	})
}

func TestRequestForAnotherHoldIsIgnored(t *testing.T) {
	bubbles(t, map[string]func(*metadata.FinishRequest){
		"another uuid":  func(r *metadata.FinishRequest) { r.UUID = foreignUUID },
		"another token": func(r *metadata.FinishRequest) { r.Token++ },
		"huge": func(r *metadata.FinishRequest) {
			r.Reason = strings.Repeat("x",
				lockrecord.MaxDocumentBytes)
		},
	}, func(t *testing.T, f *fake, locks *mutex.Client, change func(*metadata.FinishRequest)) {
		l := take(t, locks, "a")
		time.Sleep(time.Second)
		r := request(read(t, f.etcd, "a"), "ann", "now")
		change(&r)
		for _, value := range []string{protocol.Marshal(r), "", "ann", "[]", "{", `{"uuid":1}`} {
			f.put("/mutexes/a/asked", value)
			if isAsked(l.FinishRequested()) {
				t.Errorf("it heeds %+v", l.FinishRequest())
			}
		}
		time.Sleep(2 * time.Minute)
		if isAsked(l.FinishRequested()) {
			t.Errorf("it heeds %+v", l.FinishRequest())
		}
		ask(t, f, "a", "ann", "after all")
		if !isAsked(l.FinishRequested()) {
			t.Error("it no longer heeds a good one")
		}
	})
}

func TestEveryHandleSeesTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		r, err := locks.TryReserve(t.Context(), "a", "maintenance", time.Hour, mutex.Semaphore(3))
		proctest.Must(t, err)
		ask(t, f, r.Name, "bob", "before the adoption")
		l, err := locks.Adopt(t.Context(), r.Name, r.UUID)
		proctest.Must(t, err)
		if !isAsked(l.FinishRequested()) || l.FinishRequest().By != "bob" {
			t.Errorf("what was asked before: %+v", l.FinishRequest())
		}
		unlock(t, l)
		outer := take(t, locks, "a")
		inner := enter(t, locks, outer)
		time.Sleep(time.Second)
		ask(t, f, "a", "ann", "now")
		for of, handle := range map[string]*mutex.Lock{"outer": outer, "inner": inner} {
			if !isAsked(handle.FinishRequested()) || handle.FinishRequest().By != "ann" {
				t.Errorf("the %s handle: %+v", of, handle.FinishRequest())
			}
		}
	})
}

func TestRequestForOneLockReachesAllTakenTogether(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		both := takeAll(t, locks, []string{"a", "b"})
		early := both.FinishRequested()
		whole := mutex.FromContext(both.Context())
		time.Sleep(time.Second)
		if isAsked(early) || both.FinishRequest() != nil || isAsked(whole.FinishRequested()) {
			t.Error("asked before anybody did")
		}
		ask(t, f, "b", "ann", "now")
		if !isAsked(early) || !isAsked(both.FinishRequested()) || both.FinishRequest().By != "ann" ||
			!isAsked(whole.FinishRequested()) {
			t.Errorf("the request is %+v", both.FinishRequest())
		}
		if err := whole.FinishRequestError(); err == nil || !strings.Contains(err.Error(), `lock "b" was asked`) {
			t.Errorf("the error is %v", err)
		}
		if all := both.All(); isAsked(all[0].FinishRequested()) || !isAsked(all[1].FinishRequested()) {
			t.Error("the handles of the locks mix up their requests")
		}
		late, err := locks.Lock(both.Context(), "a", mutex.Reentrant())
		if err != nil || !isAsked(late.FinishRequested()) {
			t.Errorf("the inner handle is not asked: %v", err)
		}
		late.Unlock()
	})
}

// A holder that works in OnFinishRequest must still learn of a loss at once.
func TestSlowOnAskedBlocksNothing(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		var told []string
		l := take(t, locks, "a", mutex.OnFinishRequest(func(r metadata.FinishRequest) {
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

func TestUrgentWaiterAsksEachHolderOnce(t *testing.T) {
	bubbles(t, map[string][]mutex.Option{"in the queue": nil, "without a queue": {mutex.WithoutQueue()}},
		func(t *testing.T, f *fake, locks *mutex.Client, opts []mutex.Option) {
			first := take(t, locks, "a")
			requests := 0
			got := make(chan *mutex.Lock, 2)
			wait := func(opts ...mutex.Option) {
				go func() { got <- <-waits(t, locks, opts...) }()
				time.Sleep(2 * time.Second)
			}
			wait(mutex.OnFinishRequest(func(metadata.FinishRequest) { requests++ }), mutex.Owner("patient"))
			if isAsked(first.FinishRequested()) {
				t.Error("a waiter in no hurry asks")
			}
			if refused(t, locks, "a", mutex.AskToFinish("now")); isAsked(first.FinishRequested()) {
				t.Error("one that does not wait asks")
			}
			wait(append(opts, mutex.AskToFinish("deploy of the fix"), mutex.Owner("deploy"))...)
			r := first.FinishRequest()
			if r == nil || r.By != "deploy" || r.Source != "waiter" || r.Reason != "deploy of the fix" ||
				r.At.IsZero() {
				t.Fatalf("the request is %+v", r)
			}
			const says = `the holder of lock "a" was asked to finish by deploy, who waits for it, `
			if err := first.FinishRequestError(); !strings.HasPrefix(err.Error(), says) {
				t.Errorf("got %v", err)
			}
			time.Sleep(10 * time.Second)
			if first.FinishRequest() != r {
				t.Error("it is asked again")
			}
			first.Unlock()
			second := <-got
			if opts == nil { // the next holder is asked, too, and the queue has its order
				time.Sleep(10 * time.Second)
				if !isAsked(second.FinishRequested()) || requests != 1 {
					t.Errorf("the next holder was asked %d times", requests)
				}
			}
			second.Unlock()
			<-got
		})
}

func TestUrgentWaiterAsksEveryBlockingHolder(t *testing.T) {
	type kind = []mutex.Option
	reads, writes := kind{mutex.Shared()}, kind{mutex.Exclusive()}
	of := func(limit int, weight int) kind { return kind{mutex.Semaphore(limit), mutex.Weight(weight)} }
	type way struct {
		holders []kind
		waits   kind
		want    string // records that are asked
	}
	bubbles(t, map[string]way{
		"a writer asks all readers":                {[]kind{reads, reads}, writes, "a#1 a#2"},
		"a plain lock asks all readers":            {[]kind{reads, reads}, nil, "a#1 a#2"},
		"a reader asks the writer":                 {[]kind{writes}, reads, "a"},
		"one permit asks the oldest":               {[]kind{of(2, 1), of(2, 1)}, of(2, 1), "a#1"},
		"two permits ask the oldest that have two": {[]kind{of(4, 2), of(4, 1), of(4, 1)}, of(4, 2), "a#1"},
		"all permits ask all":                      {[]kind{of(4, 1), of(4, 1)}, of(4, 4), "a#1 a#2"},
		"a whole semaphore is asked":               {[]kind{writes}, of(4, 1), "a"},
	}, func(t *testing.T, f *fake, locks *mutex.Client, c way) {
		var held []*mutex.Lock
		for _, opts := range c.holders {
			held = append(held, take(t, locks, "a", opts...))
		}
		_, err := locks.Lock(within(t, 10*time.Second), "a", append(c.waits, mutex.AskToFinish("now"))...)
		if !errors.Is(err, mutex.ErrHeld) {
			t.Errorf("got %v", err)
		}
		var asked []string
		for _, l := range held {
			if isAsked(l.FinishRequested()) {
				asked = append(asked, l.Name())
			}
		}
		if got := strings.Join(asked, " "); got != c.want {
			t.Errorf("asked %q, want %q", got, c.want)
		}
	})
}

func TestFailedRequestDoesNotEndTheWait(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		asks := 0
		l := take(t, locks, "a")
		time.AfterFunc(time.Minute, func() { l.Unlock() })
		c := newClient(t, onTxn(f.client(), func(ctx context.Context, txn *heldTxn) (*clientv3.TxnResponse, error) {
			if txn.writes("/mutexes/a/asked") {
				asks++
				return nil, rpctypes.ErrPermissionDenied
			}
			return txn.send(ctx)
		}))
		if <-waits(t, c, mutex.AskToFinish("now")); asks != 1 {
			t.Fatalf("%d attempts to ask", asks)
		}
	})
}

func TestUrgentNeedsAReason(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		for _, reason := range []string{"", "  ", "two\nlines", "\xff", strings.Repeat("x", metadata.MaxTextBytes+1)} {
			if _, err := locks.Lock(t.Context(), "a", mutex.AskToFinish(reason)); err == nil {
				t.Errorf("%q is accepted", reason)
			}
		}
		// Texts are cut to what readers accept.
		l := take(t, locks, "a")
		long := strings.Repeat("<", metadata.MaxTextBytes)
		locks.Lock(within(t, 10*time.Second), "a", mutex.AskToFinish(long), mutex.Owner(long))
		if r := l.FinishRequest(); r == nil || r.Reason == "" ||
			len(protocol.Marshal(*r)) > lockrecord.MaxDocumentBytes {
			t.Errorf("the request is %+v", r)
		}
	})
}
