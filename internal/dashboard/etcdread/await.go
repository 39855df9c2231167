// Package etcdread reads from etcd what the watch does not bring: past holds, and what operators did. A page waits for
// etcd no longer than it can.
package etcdread

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"
)

// Timeouts of reads from etcd.
const (
	Timeout      = 2 * time.Second
	ShortTimeout = 300 * time.Millisecond // of pages that can show the snapshot instead
)

// ErrTimedOut is the cause of a context that ends after ShortTimeout.
var ErrTimedOut = fmt.Errorf("no answer within %v", ShortTimeout)

// Await reads from etcd, and waits for the answer until ctx ends. The read itself goes on. A panic in it is logged, and
// returned as an error.
func Await[T any](ctx context.Context, log zerolog.Logger, read func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		a := answer{err: errors.New("the read failed, and the dashboard's log says why")}
		reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		defer func() {
			if cause := recover(); cause != nil {
				log.Error().Any("panic", cause).Bytes("stack", debug.Stack()).Msg("a read behind a page panicked")
			}
			done <- a
		}()
		a.value, a.err = read(reading)
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
