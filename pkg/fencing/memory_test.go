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

	"github.com/clustermutex/unlocker/pkg/fencing"
)

func TestNewerTokenWaitsForTheOlderWriteAndShutsItsHolderOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fencing.NewMemory(0)
		leave, err := m.Enter(t.Context(), "a", 5)
		if err != nil {
			t.Fatal(err)
		}
		leaveToo, err := m.Enter(t.Context(), "a", 5) // the same holder writes two things at a time
		if err != nil {
			t.Fatal(err)
		}
		in := make(chan error, 1)
		go func() {
			_, err := m.Enter(t.Context(), "a", 6)
			in <- err
		}()
		synctest.Wait()
		if _, err := m.Enter(t.Context(), "a", 5); !isStale(err, 6) {
			t.Errorf("a write of the former holder: %v", err)
		}
		leave()
		leave() // counts once
		synctest.Wait()
		select {
		case err := <-in:
			t.Fatalf("the newer one got in beside an older write: %v", err)
		default:
		}
		leaveToo()
		if err := <-in; err != nil {
			t.Error(err)
		}
	})
}

func TestTokenThatGaveUpWaitingCountsAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fencing.NewMemory(0)
		leave, err := m.Enter(t.Context(), "a", 5)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := m.Enter(ctx, "a", 6); !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, fencing.ErrRefused) {
			t.Errorf("got %v", err)
		}
		leave()
		if _, err := m.Enter(t.Context(), "a", 5); !isStale(err, 6) {
			t.Errorf("got %v", err)
		}
	})
}

func TestMemoryRefusesWhatItCannotKeepAndKeepsWhatItHas(t *testing.T) {
	m := full(t)
	if _, err := m.Enter(t.Context(), "new", 9); !errors.Is(err, fencing.ErrFull) ||
		errors.Is(err, fencing.ErrRefused) {
		t.Errorf("a new resource: %v", err)
	}
	if leave, err := m.Enter(t.Context(), "another", 2); err != nil {
		t.Errorf("a known one: %v", err)
	} else {
		leave()
	}
	if _, err := m.Enter(t.Context(), "another", 1); !isStale(err, 2) {
		t.Errorf("a stale one: %v", err)
	}
}

// Whatever the order of the writes, the state never goes back, and two holders never write at the same time.
func TestWritesOfManyHoldersNeverGoBack(t *testing.T) {
	m := fencing.NewMemory(0)
	resources := []string{"a", "b", "c"}
	type state struct{ written, inside atomic.Int64 }
	states := map[string]*state{}
	for _, r := range resources {
		states[r] = &state{}
	}
	var accepted, refused atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := range 300 {
				name := resources[rand.IntN(len(resources))]
				token := int64(i + 1 + rand.IntN(20))
				leave, err := m.Enter(context.Background(), name, token)
				if err != nil {
					refused.Add(1)
					if !errors.Is(err, fencing.ErrRefused) {
						t.Error(err)
					}
					continue
				}
				accepted.Add(1)
				s := states[name]
				s.inside.Store(token)
				if before := s.written.Swap(token); before > token {
					t.Errorf("%s: %d was written over %d", name, token, before)
				}
				if now := s.inside.Load(); now != token {
					t.Errorf("%s: %d writes beside %d", name, now, token)
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

func isStale(err error, newest int64) bool {
	stale, ok := errors.AsType[*fencing.StaleError](err)
	return ok && stale.Newest == newest && errors.Is(err, fencing.ErrRefused)
}
