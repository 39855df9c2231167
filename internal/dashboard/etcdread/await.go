// Package etcdread reads from etcd what the watch does not bring: past holds, what operators did, and backtraces. A
// page waits for etcd no longer than it can.
package etcdread

import (
	"context"
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

// Await reads from etcd, and waits for the answer until ctx ends. The read itself goes on. If it panics, so does the
// caller, as if it had read by itself; when that has gone on, the log has it.
func Await[T any](ctx context.Context, log zerolog.Logger, read func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
		cause any
	}
	done := make(chan answer)
	go func() {
		var a answer
		reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		defer func() {
			a.cause = recover()
			select {
			case done <- a:
			case <-ctx.Done():
				if a.cause != nil {
					log.Error().Any("panic", a.cause).Bytes("stack",
						debug.Stack()).Msg("a read behind a page panicked")
				}
			}
		}()
		a.value, a.err = read(reading)
	}()
	select {
	case a := <-done:
		if a.cause != nil {
			panic(a.cause)
		}
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
