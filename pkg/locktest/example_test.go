package locktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/clustermutex/unlocker/pkg/locktest"
	"github.com/clustermutex/unlocker/pkg/mutex"
)

// sendInvoices is the program under test. It stops between two customers when the lock is lost.
func sendInvoices(ctx context.Context, locks *mutex.Client, send func(customer int)) error {
	return locks.Do(ctx, "invoices", func(ctx context.Context) error {
		for customer := range 100 {
			send(customer)
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}, mutex.AlertAfter(2*time.Hour), mutex.AutoUnlockAfter(3*time.Hour))
}

func TestInvoicesStopWhenTheLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // here an hour passes at once
		server := locktest.NewInMemory(t)
		locks := server.Client(mutex.Options{Owner: "billing"})
		sent := 0
		ended := make(chan error)
		go func() { ended <- sendInvoices(t.Context(), locks, func(int) { sent++ }) }()

		server.AwaitHeld("invoices")
		time.Sleep(time.Hour + time.Second)
		server.ForceUnlock("invoices", "wrong month")

		if err := <-ended; !errors.Is(err, mutex.ErrNotHeld) || sent != 61 {
			t.Errorf("%d invoices were sent, then: %v", sent, err)
		}
		server.AssertNothingLeft()
	})
}
