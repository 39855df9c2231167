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

func TestReservationsThatCannotBeAreRefusedBeforeEtcdIsAsked(t *testing.T) {
	locks := unconnected(t)
	for _, c := range []struct {
		name, reason string
		d            time.Duration
		opt          mutex.Option
		want         string
	}{
		{"", "x", time.Hour, nil, "the lock name is empty"},
		{"a", "", time.Hour, nil, "a reservation needs a reason: no process can explain what the lock is held for"},
		{"a", "x", 0, nil, "the time until auto-unlock is 0s, it must be positive"},
		{"a", "x", -time.Hour, nil, "the time until auto-unlock is -1h0m0s, it must be positive"},
		{"a", "x", time.Hour, mutex.AlertAfter(2 * time.Hour),
			"the time until alert of 2h0m0s is longer than the time until auto-unlock of 1h0m0s"},
		{"a", "x", time.Hour, mutex.Heartbeat(2 * time.Hour),
			"a reservation has no heartbeat: nothing runs that could extend it"},
		{"a", "x", time.Hour, mutex.Reentrant(), "a reservation cannot be Reentrant: it is a hold of its own"},
	} {
		_, waits := locks.Reserve(context.Background(), c.name, c.reason, c.d, c.opt)
		_, tries := locks.TryReserve(context.Background(), c.name, c.reason, c.d, c.opt)
		for _, err := range []error{waits, tries} {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		}
	}
}
