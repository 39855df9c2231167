package daemon_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/internal/daemon"
)

// diary is what parts did, and when.
type diary struct {
	start   time.Time
	entries []string
}

func (d *diary) part(name string, stopTakes time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		time.Sleep(stopTakes)
		d.entries = append(d.entries, name+" "+time.Since(d.start).String())
		return nil
	}
}

func TestPartsStopInOrderAfterTheDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := diary{start: time.Now()}
		ready := &daemon.Readiness{}
		g := daemon.Group{Log: zerolog.Nop(), Ready: ready, Delay: 5 * time.Second, Timeout: 20 * time.Second}
		g.Add("view", d.part("view", 0))
		g.Add("http", d.part("http", 2*time.Second))
		g.Add("sweeper", d.part("sweeper", time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		time.AfterFunc(2*time.Second, func() {
			if ready.Check() == nil {
				t.Error("it is ready within the delay")
			}
		})
		if err := g.Run(ctx); err != nil {
			t.Error(err)
		}
		if want := []string{"sweeper 7s", "http 9s", "view 9s"}; !slices.Equal(d.entries, want) {
			t.Errorf("parts stopped %v, want %v", d.entries, want)
		}
	})
}

func TestFailedPartStopsTheOthersAtOnce(t *testing.T) {
	broken := errors.New("address already in use")
	for name, c := range map[string]struct {
		end  error
		says string
	}{
		"an error":      {broken, "http: address already in use"},
		"a quiet death": {nil, "http ended by itself"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := diary{start: time.Now()}
				g := daemon.Group{Log: zerolog.Nop(), Delay: time.Hour, Timeout: 20 * time.Second}
				g.Add("view", d.part("view", time.Second))
				g.Add("http", func(context.Context) error { return c.end })
				g.Add("sweeper", d.part("sweeper", time.Second))
				err := g.Run(t.Context())
				if err == nil || err.Error() != c.says || !errors.Is(err, c.end) && c.end != nil {
					t.Errorf("the group ended with %v, want %q", err, c.says)
				}
				if want := []string{"sweeper 1s", "view 2s"}; !slices.Equal(d.entries, want) {
					t.Errorf("parts stopped %v, want %v", d.entries, want)
				}
			})
		})
	}
}

func TestFailureCutsTheDelayShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		g := daemon.Group{Log: zerolog.Nop(), Delay: time.Hour}
		g.Add("http", func(context.Context) error {
			time.Sleep(time.Minute)
			return errors.New("broken")
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Run(ctx); err == nil || time.Since(start) != time.Minute {
			t.Errorf("the group ended with %v after %v", err, time.Since(start))
		}
	})
}

func TestPartThatDoesNotStopIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		g := daemon.Group{Log: zerolog.Nop(), Timeout: 20 * time.Second}
		stopped := false
		g.Add("view", func(ctx context.Context) error {
			<-ctx.Done()
			stopped = true
			return nil
		})
		g.Add("sweeper", func(context.Context) error {
			<-release
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.Run(ctx); err == nil || !strings.Contains(err.Error(), "sweeper did not stop within 20s") {
			t.Errorf("the group ended with %v", err)
		}
		synctest.Wait()
		if !stopped {
			t.Error("the part below the stuck one was not told to stop")
		}
		close(release)
	})
}
