package mutex_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

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
			wait(mutex.OnAsked(func(metadata.Request) { requests++ }), mutex.Owner("patient"))
			if isAsked(first.Asked()) {
				t.Error("a waiter in no hurry asks")
			}
			if _, err := locks.TryLock(t.Context(), "a", mutex.Urgent("now")); !errors.Is(err, mutex.ErrHeld) ||
				isAsked(first.Asked()) {
				t.Errorf("one that does not wait asks: %v", err)
			}
			wait(append(opts, mutex.Urgent("deploy of the fix"), mutex.Owner("deploy"))...)
			r := first.Request()
			if r == nil || r.By != "deploy" || r.Source != "waiter" || r.Reason != "deploy of the fix" || r.At.IsZero() {
				t.Fatalf("the request is %+v", r)
			}
			const says = `the holder of lock "a" was asked to finish by deploy, who waits for it, `
			if err := first.AskedError(); !strings.HasPrefix(err.Error(), says) {
				t.Errorf("got %v", err)
			}
			time.Sleep(10 * time.Second)
			if first.Request() != r {
				t.Error("it is asked again")
			}
			first.Unlock()
			second := <-got
			if opts == nil { // the next holder is asked, too, and the queue has its order
				time.Sleep(10 * time.Second)
				if !isAsked(second.Asked()) || requests != 1 {
					t.Errorf("the next holder was asked %d times", requests)
				}
			}
			second.Unlock()
			<-got
		})
}

func TestUrgentWaiterAsksThoseInItsWay(t *testing.T) {
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
		_, err := locks.Lock(within(t, 10*time.Second), "a", append(c.waits, mutex.Urgent("now"))...)
		if !errors.Is(err, mutex.ErrHeld) {
			t.Errorf("got %v", err)
		}
		var asked []string
		for _, l := range held {
			if isAsked(l.Asked()) {
				asked = append(asked, l.Name())
			}
		}
		if got := strings.Join(asked, " "); got != c.want {
			t.Errorf("asked %q, want %q", got, c.want)
		}
	})
}

func TestFailureToAskDoesNotEndTheWait(t *testing.T) {
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
		if <-waits(t, c, mutex.Urgent("now")); asks != 1 {
			t.Fatalf("%d attempts to ask", asks)
		}
	})
}

func TestUrgentNeedsAReason(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		for _, reason := range []string{"", "  ", "two\nlines", "\xff", strings.Repeat("x", metadata.MaxTextBytes+1)} {
			if _, err := locks.Lock(t.Context(), "a", mutex.Urgent(reason)); err == nil {
				t.Errorf("%q is accepted", reason)
			}
		}
		// What readers would not read is made shorter.
		l := take(t, locks, "a")
		long := strings.Repeat("<", metadata.MaxTextBytes)
		locks.Lock(within(t, 10*time.Second), "a", mutex.Urgent(long), mutex.Owner(long))
		if r := l.Request(); r == nil || r.Reason == "" || len(protocol.Marshal(*r)) > metadata.MaxDocumentBytes {
			t.Errorf("the request is %+v", r)
		}
	})
}
