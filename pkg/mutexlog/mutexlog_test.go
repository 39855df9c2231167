package mutexlog_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
	"github.com/clustermutex/unlocker/pkg/mutexlog"
)

func TestLogCoversTheLifeOfALock(t *testing.T) {
	var plain, zero bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewInMemory(t)
		text := slog.New(slog.NewTextHandler(&plain, &slog.HandlerOptions{Level: slog.LevelDebug}))
		json := mutexlog.FromZerolog(zerolog.New(&zero))
		locks := s.Client(mutex.Options{Logger: text, Hooks: mutexlog.Hooks(text).And(mutexlog.Hooks(json))})
		take := func(name string) *mutex.Lock {
			l, err := locks.TryLock(context.Background(), name, mutex.AutoUnlockAfter(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		l := take("a")
		locks.TryLock(context.Background(), "a")
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		locks.Lock(ctx, "a")
		l.Alive(context.Background())
		l.Unlock()
		l = take("b")
		s.ForceUnlock("b", "wrong month")
		l.Unlock()
		l = take("c")
		s.Disconnect()
		ctx, cancel = context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		l.Alive(ctx)
		locks.TryLock(context.Background(), "d")
		l.Unlock()
	})
	for _, want := range []string{
		`level=DEBUG msg="lock acquired" lock=a uuid=`, `waited=0s`,
		`level=DEBUG msg="lock not acquired" lock=a waited=0s error="lock \"a\" is held by`,
		`level=INFO msg="gave up waiting for a lock" lock=a waited=1m0s error=`,
		`level=DEBUG msg="lock extended" lock=a uuid=`, `heartbeat=false`,
		`level=DEBUG msg="lock released" lock=a uuid=`, `held=1m0s`,
		`level=WARN msg="lock was lost before it was released" lock=b uuid=`, `wrong month`,
		`level=WARN msg="lock not extended" lock=c`,
		`level=WARN msg="lock not acquired" lock=d`,
		`level=WARN msg="lock not released yet" lock=c`,
	} {
		if !strings.Contains(plain.String(), want) {
			t.Errorf("slog has no %s in\n%s", want, &plain)
		}
	}
	for _, want := range []string{`"level":"debug"`, `"message":"lock acquired"`, `"level":"warn"`, `"lock":"b"`} {
		if !strings.Contains(zero.String(), want) {
			t.Errorf("zerolog has no %s in\n%s", want, &zero)
		}
	}
	if strings.Contains(zero.String(), `"time":`) {
		t.Errorf("a logger that writes no time has one in\n%s", &zero)
	}
}
