package mutex_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

func TestReservationOutlivesWhoMadeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		ctx := context.Background()
		locks := newClient(t, f.client(), mutex.Options{Defaults: opts(mutex.Heartbeat(time.Minute))})
		r, err := locks.Reserve(ctx, "db", "maintenance, OPS-12", 2*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		now := read(t, f.operator, "db")
		if now.UUID != r.UUID || now.Token != r.Token || r.Lock != "db" || !now.AutoUnlockAt.Equal(r.Until) ||
			time.Until(r.Until) != time.Hour {
			t.Errorf("the reservation says %+v, the record %+v", r, now.Record)
		}
		if now.Purpose != "maintenance, OPS-12" || now.Attributes["reserved"] != true ||
			!now.AlertAt.Equal(now.AutoUnlockAt) || now.Alive != nil {
			t.Errorf("the record is %+v", now.Record)
		}

		later := newClient(t, f.client(), mutex.Options{})
		if _, err := later.TryReserve(ctx, "db", "me, too", time.Hour); err == nil || !strings.Contains(err.Error(),
			`for "maintenance, OPS-12"`) {
			t.Errorf("a second one: %v", err)
		}
		l, err := later.Adopt(ctx, r.Lock, r.UUID)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Unlock(); err != nil || read(t, f.operator, "db").Token != 0 {
			t.Errorf("released: %v", err)
		}
		if err := later.Close(); err != nil {
			t.Error(err)
		}
	})
}
