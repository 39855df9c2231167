package fencing_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
	"github.com/clustermutex/unlocker/pkg/fencing"
)

// enters enters as a holder who has to get in.
func enters(t testing.TB, m *fencing.Memory, resource string, token int64) (leave func()) {
	t.Helper()
	leave, err := m.Enter(t.Context(), resource, token)
	proctest.Must(t, err)
	return leave
}

// isStale wants a holder to be refused because of a newer token.
func isStale(t testing.TB, m *fencing.Memory, resource string, token, newest int64) {
	t.Helper()
	_, err := m.Enter(t.Context(), resource, token)
	stale, ok := errors.AsType[*fencing.StaleError](err)
	if !ok || stale.Newest != newest || !errors.Is(err, fencing.ErrRefused) {
		t.Errorf("token %d after %d: %v", token, newest, err)
	}
}

func TestNewerTokenWaitsForTheOlderWriteAndExcludesItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fencing.NewMemory(0)
		leave := enters(t, m, "a", 5)
		leaveToo := enters(t, m, "a", 5) // the same holder writes two things at a time
		in := make(chan error, 1)
		go func() {
			_, err := m.Enter(t.Context(), "a", 6)
			in <- err
		}()
		synctest.Wait()
		isStale(t, m, "a", 5, 6)
		leave()
		leave() // counts once
		synctest.Wait()
		if len(in) > 0 {
			t.Fatal("the newer token was admitted during an older write")
		}
		leaveToo()
		proctest.Must(t, <-in)
	})
}

func TestTokenOfACancelledWaitStillCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fencing.NewMemory(0)
		leave := enters(t, m, "a", 5)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := m.Enter(ctx, "a", 6); !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, fencing.ErrRefused) {
			t.Errorf("got %v", err)
		}
		leave()
		isStale(t, m, "a", 5, 6)
	})
}

func TestFullMemoryStoreRefusesNewEntries(t *testing.T) {
	m := full(t)
	if _, err := m.Enter(t.Context(), "new", 9); !errors.Is(err, fencing.ErrTooManyResources) ||
		errors.Is(err, fencing.ErrRefused) {
		t.Errorf("a new resource: %v", err)
	}
	enters(t, m, "another", 2)()
	isStale(t, m, "another", 1, 2)
}

// Whatever the order of the writes, the state never goes back, and two holders never write at the same time.
func TestWritesOfManyHoldersNeverGoBack(t *testing.T) {
	m := fencing.NewMemory(0)
	var written, inside, accepted, refused atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range 300 {
				token := int64(i + 1 + rand.IntN(20))
				leave, err := m.Enter(context.Background(), "a", token)
				if err != nil {
					refused.Add(1)
					if !errors.Is(err, fencing.ErrRefused) {
						t.Error(err)
					}
					continue
				}
				accepted.Add(1)
				inside.Store(token)
				if before := written.Swap(token); before > token {
					t.Errorf("%d was written over %d", token, before)
				}
				if now := inside.Load(); now != token {
					t.Errorf("%d writes beside %d", now, token)
				}
				leave()
			}
		})
	}
	all.Wait()
	if accepted.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d accepted, %d refused: nothing was tried", accepted.Load(), refused.Load())
	}
}
