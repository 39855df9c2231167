package childproc

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// Signals forwards signals to a command. It catches them from the start, so that none ends mutexctl between taking and
// releasing the lock. Until [Signals.Hand], the first one ends the context.
type Signals struct {
	c    chan os.Signal
	ctx  context.Context
	end  context.CancelCauseFunc
	over chan struct{}
}

// Catch starts catching signals. [Signals.Context] is derived from ctx.
func Catch(ctx context.Context) *Signals {
	s := &Signals{c: make(chan os.Signal, 8), over: make(chan struct{})}
	s.ctx, s.end = context.WithCancelCause(ctx)
	signal.Notify(s.c, heeded(forwarded()...)...)
	go func() {
		defer close(s.over)
		select {
		case sig := <-s.c:
			s.end(SignalError{sig.(syscall.Signal)})
		case <-s.ctx.Done():
		}
	}()
	return s
}

// Context ends with the first signal that comes before [Signals.Hand], with a [SignalError] as its cause.
func (s *Signals) Context() context.Context { return s.ctx }

// C delivers the signals after [Signals.Hand].
func (s *Signals) C() <-chan os.Signal { return s.c }

// Hand hands signals over to the command. If one came before, it is the error.
func (s *Signals) Hand() error {
	s.end(nil)
	<-s.over
	if sig, ok := context.Cause(s.ctx).(SignalError); ok {
		return sig
	}
	return nil
}

// Stop stops catching signals.
func (s *Signals) Stop() {
	signal.Stop(s.c)
	s.end(nil)
}

// SignalError is the cause of a context that a signal ended.
type SignalError struct{ syscall.Signal }

// Error names the signal.
func (e SignalError) Error() string { return "ended by the signal " + e.Signal.String() }

// UntilSignal returns a context that INT and TERM end, with a SignalError as its cause.
func UntilSignal(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, heeded(syscall.SIGINT, syscall.SIGTERM)...)
	go func() {
		select {
		case sig := <-signals:
			cancel(SignalError{sig.(syscall.Signal)})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// heeded leaves out signals that our parent made us ignore, as nohup does, and shells do for background jobs.
func heeded(signals ...os.Signal) []os.Signal {
	return slices.DeleteFunc(signals, signal.Ignored)
}
