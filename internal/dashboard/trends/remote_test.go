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

func TestPageDoesNotWaitLongForRemoteTrends(t *testing.T) {
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
			return []trends.Sample{{At: to, N: 3}, {At: from, N: 2}}, nil
		})
		samples, err := r.Lock(t.Context(), "a", time.Now())
		if err != nil || len(samples) != 2 || samples[0].At.After(time.Now()) ||
			time.Since(samples[0].At) >= trends.Slot || samples[0].At.Sub(samples[1].At) != 24*time.Hour-trends.Slot {
			t.Fatalf("%+v, %v", samples, err)
		}
		if samples, err := r.Lock(t.Context(), "unknown", time.Now()); samples != nil || err != nil {
			t.Errorf("of a lock without samples: %v, %v", samples, err)
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
		if samples, err := r.Lock(t.Context(), "a", time.Now()); err != nil || samples == nil || asked.Load() != 3 {
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
