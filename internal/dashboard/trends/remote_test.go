package trends_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/internal/dashboard/trends"
)

func TestAPageDoesNotWaitLongForAnotherMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		takes := 50 * time.Millisecond
		var fails error
		r := trends.NewRemote(func(ctx context.Context, lock string, from, to time.Time) ([]trends.Sample, error) {
			asked++
			select {
			case <-time.After(takes):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if fails != nil || lock == "unknown" {
				return nil, fails
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
		if r.Lock(t.Context(), "a", time.Now()); asked != 2 {
			t.Errorf("asked %d times", asked)
		}

		time.Sleep(time.Minute)
		takes = time.Second
		began := time.Now()
		if _, err := r.Lock(t.Context(), "a", time.Now()); !errors.Is(err, trends.ErrLate) {
			t.Errorf("slow: %v", err)
		}
		if took := time.Since(began); took != trends.Patience {
			t.Errorf("the page waited for %v", took)
		}
		time.Sleep(time.Second)
		if points, err := r.Lock(t.Context(), "a", time.Now()); err != nil || points == nil || asked != 3 {
			t.Errorf("the answer that came late: %v, asked %d times", err, asked)
		}

		time.Sleep(time.Minute)
		takes = time.Hour
		for i := range 20 {
			if _, err := r.Lock(t.Context(), string(rune('a'+i)), time.Now()); err == nil {
				t.Errorf("%d: silence is an answer", i)
			}
		}
		time.Sleep(time.Minute)
		takes = 0
		fails = errors.New("away")
		if _, err := r.Lock(t.Context(), "a", time.Now()); !errors.Is(err, fails) {
			t.Errorf("away: %v", err)
		}
	})
}
