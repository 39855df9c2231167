//go:build unix

package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// caught are the signals that run passes on to its command. They are caught from the beginning, so that none of them
// ends mutexctl between taking the lock and giving it back. Until [caught.hand] the first of them ends ctx.
type caught struct {
	c    chan os.Signal
	ctx  context.Context
	end  context.CancelCauseFunc
	over chan struct{}
}

func catch(ctx context.Context) *caught {
	s := &caught{c: make(chan os.Signal, 8), over: make(chan struct{})}
	s.ctx, s.end = context.WithCancelCause(ctx)
	signal.Notify(s.c, heeded(syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1,
		syscall.SIGUSR2)...)
	go func() {
		defer close(s.over)
		select {
		case sig := <-s.c:
			s.end(signalError{sig.(syscall.Signal)})
		case <-s.ctx.Done():
		}
	}()
	return s
}

// hand hands the signals over to the command. When one came before, it ended us instead and is the error.
func (s *caught) hand() error {
	s.end(nil)
	<-s.over
	if sig, ok := context.Cause(s.ctx).(signalError); ok {
		return sig
	}
	return nil
}

func (s *caught) stop() {
	signal.Stop(s.c)
	s.end(nil)
}
