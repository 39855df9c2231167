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
	for name, opts := range map[string][]mutex.Option{"in the queue": nil, "without a queue": {mutex.WithoutQueue()}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
				urgent := append(opts, mutex.Urgent("deploy of the fix"), mutex.Owner("deploy"))
				first := take(t, locks, "a")
				requests := 0
				hear := mutex.OnAsked(func(metadata.Request) { requests++ })
				got := make(chan *mutex.Lock, 2)
				wait := func(opts ...mutex.Option) {
					go func() { got <- <-waits(t, locks, opts...) }()
					time.Sleep(2 * time.Second)
				}
				wait(hear, mutex.Owner("patient"))
				if isAsked(first.Asked()) {
					t.Error("a waiter in no hurry asks")
				}
				wait(urgent...)
				r := first.Request()
				if r == nil || r.By != "deploy" || r.Source != "waiter" || r.Reason != "deploy of the fix" ||
					r.At.IsZero() {
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
				(<-got).Unlock()
			})
		})
	}
}

func TestWhoeverDoesNotWaitAsksNobody(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		l := take(t, locks, "a")
		if _, err := locks.TryLock(t.Context(), "a", mutex.Urgent("now")); !errors.Is(err, mutex.ErrHeld) {
			t.Errorf("got %v", err)
		}
		time.Sleep(5 * time.Second)
		if read(t, f.etcd, "a").Asked != nil {
			t.Error("TryLock asks")
		}
		l.Unlock()
	})
}

func TestUrgentWaiterAsksThoseInItsWay(t *testing.T) {
	for name, c := range map[string]struct {
		holders [][]mutex.Option
		waits   []mutex.Option
		want    string // records that are asked
	}{
		"a writer asks all readers": {
			[][]mutex.Option{{mutex.Shared()}, {mutex.Shared()}}, []mutex.Option{mutex.Exclusive()}, "a#1 a#2"},
		"a reader asks the writer": {
			[][]mutex.Option{{mutex.Exclusive()}}, []mutex.Option{mutex.Shared()}, "a"},
		"one permit asks the oldest": {
			[][]mutex.Option{{mutex.Semaphore(2)}, {mutex.Semaphore(2)}}, []mutex.Option{mutex.Semaphore(2)}, "a#1"},
		"two permits ask the oldest that have two": {
			[][]mutex.Option{{mutex.Semaphore(4), mutex.Weight(2)}, {mutex.Semaphore(4)}, {mutex.Semaphore(4)}},
			[]mutex.Option{mutex.Semaphore(4), mutex.Weight(2)}, "a#1"},
		"all permits ask all": {
			[][]mutex.Option{{mutex.Semaphore(4)}, {mutex.Semaphore(4)}},
			[]mutex.Option{mutex.Semaphore(4), mutex.Weight(4)}, "a#1 a#2"},
		"a whole semaphore is asked": {
			[][]mutex.Option{{mutex.Exclusive()}}, []mutex.Option{mutex.Semaphore(4)}, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
				var held []*mutex.Lock
				for _, opts := range c.holders {
					held = append(held, take(t, locks, "a", opts...))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := locks.Lock(ctx, "a", append(c.waits, mutex.Urgent("now"))...)
				if !errors.Is(err, mutex.ErrHeld) {
					t.Errorf("got %v", err)
				}
				var asked []string
				for _, l := range held {
					if isAsked(l.Asked()) {
						asked = append(asked, l.Name())
					}
					l.Unlock()
				}
				if got := strings.Join(asked, " "); got != c.want {
					t.Errorf("asked %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestFailureToAskDoesNotEndTheWait(t *testing.T) {
	bubble(t, func(t *testing.T, f *fake, locks *mutex.Client) {
		asks := 0
		etcd := f.client()
		etcd.KV = &txns{KV: etcd.KV, commit: func(ctx context.Context, held *heldTxn) (*clientv3.TxnResponse, error) {
			if held.writes("/mutexes/a/asked") {
				asks++
				return nil, rpctypes.ErrPermissionDenied
			}
			return held.send(ctx)
		}}
		l := take(t, locks, "a")
		time.AfterFunc(time.Minute, func() { l.Unlock() })
		next, err := newClient(t, etcd).Lock(t.Context(), "a", mutex.Urgent("now"))
		if err != nil || asks != 1 {
			t.Fatalf("%v after %d attempts to ask", err, asks)
		}
		next.Unlock()
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
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		long := strings.Repeat("<", metadata.MaxTextBytes)
		locks.Lock(ctx, "a", mutex.Urgent(long), mutex.Owner(long))
		if r := l.Request(); r == nil || r.Reason == "" || len(protocol.Marshal(*r)) > metadata.MaxDocumentBytes {
			t.Errorf("the request is %+v", r)
		}
		l.Unlock()
	})
}
