package lockstore

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestUseOfWhatArrivedIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, alive, cancel := withStallLimit(t.Context(), stallLimit)
		defer cancel()
		time.Sleep(stallLimit - time.Second)
		alive(func() { time.Sleep(time.Hour) })
		time.Sleep(stallLimit - time.Second)
		if ctx.Err() != nil {
			t.Fatalf("it ended with %v", context.Cause(ctx))
		}
		time.Sleep(2 * time.Second)
		if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
			t.Fatalf("the silence ended with %v", cause)
		}
	})
}
