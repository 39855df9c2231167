package trends_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/trends"
)

func TestAPageDoesNotWaitLongForAnotherMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, takes atomic.Int64
		var fails atomic.Pointer[error]
		takes.Store(int64(50 * time.Millisecond))
		r := trends.NewRemote(func(ctx context.Context, lock string, from, to time.Time) ([]trends.Sample, error) {
			asked.Add(1)
			select {
			case <-time.After(time.Duration(takes.Load())):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if err := fails.Load(); err != nil {
				return nil, *err
			}
			if lock == "unknown" {
				return nil, nil
			}
			return []trends.Sample{{At: to, N: 3}, {At: to.Add(-7 * time.Minute), N: 2},
				{At: from.Add(-time.Hour)}}, nil
		})
		points, err := r.Lock(t.Context(), "a", time.Now())
		if n := len(points); err != nil || n != trends.Slots || points[n-1].Most != 3 || points[n-3].Most != 2 ||
			points[n-2].Known || points[0].Known {
			t.Fatalf("%+v, %v", points, err)
		}
		if points, err := r.Lock(t.Context(), "unknown", time.Now()); points != nil || err != nil {
			t.Errorf("of a lock without samples: %v, %v", points, err)
		}
		if r.Lock(t.Context(), "a", time.Now()); asked.Load() != 2 {
			t.Errorf("asked %d times", asked.Load())
		}

		time.Sleep(time.Minute)
		takes.Store(int64(time.Second))
		began := time.Now()
		if _, err := r.Lock(t.Context(), "a", time.Now()); !errors.Is(err, trends.ErrLate) {
			t.Errorf("slow: %v", err)
		}
		if took := time.Since(began); took != trends.Patience {
			t.Errorf("the page waited for %v", took)
		}
		time.Sleep(time.Second)
		if points, err := r.Lock(t.Context(), "a", time.Now()); err != nil || points == nil || asked.Load() != 3 {
			t.Errorf("the answer that came late: %v, asked %d times", err, asked.Load())
		}

		time.Sleep(time.Minute)
		takes.Store(int64(time.Hour))
		for i := range 20 {
			if _, err := r.Lock(t.Context(), string(rune('a'+i)), time.Now()); err == nil {
				t.Errorf("%d: silence is an answer", i)
			}
		}
		time.Sleep(time.Minute)
		takes.Store(int64(0))
		away := errors.New("away")
		fails.Store(&away)
		if _, err := r.Lock(t.Context(), "a", time.Now()); !errors.Is(err, away) {
			t.Errorf("away: %v", err)
		}
	})
}
