// Package mutexlog logs what happens to locks, through the hooks of package mutex.
//
//	locks, err := mutex.New(etcd, mutex.Options{Owner: "billing", Logger: logger, Hooks: mutexlog.Hooks(logger)})
//
// It logs what the library also returns to callers: acquired, extended, released and refused at level debug, given up
// at info, and failures at warn. Events that are not returned to a caller, such as a lost lock or a failing heartbeat,
// are logged to Options.Logger, so set both.
//
// The library logs with slog; [FromZerolog] turns a zerolog.Logger into an slog logger.
package mutexlog

import (
	"context"
	"log/slog"
	"time"

	"github.com/rs/zerolog"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// FromZerolog returns a logger that writes to log, at log's level. The time is left to log, which may add it by a hook.
func FromZerolog(log zerolog.Logger) *slog.Logger {
	return slog.New(timeless{zerolog.NewSlogHandler(log)})
}

type timeless struct{ slog.Handler }

func (h timeless) Handle(ctx context.Context, r slog.Record) error {
	r.Time = time.Time{}
	return h.Handler.Handle(ctx, r)
}

// Hooks returns hooks that write to the logger. Combine them with others: mutexlog.Hooks(l).And(others).
func Hooks(l *slog.Logger) mutex.Hooks {
	return mutex.Hooks{
		AcquireEnded: func(e mutex.AcquireEnded) { acquired(l, e) },
		ExtendEnded:  func(e mutex.ExtendEnded) { extended(l, e) },
		ReleaseEnded: func(e mutex.ReleaseEnded) { released(l, e) },
	}
}

func acquired(l *slog.Logger, e mutex.AcquireEnded) {
	waited := slog.Duration("waited", e.WaitTime)
	switch e.Result {
	case mutex.ResultAcquired:
		write(l, slog.LevelDebug, "lock acquired", nil, append(lockAttributes(e.Lock), waited)...)
	case mutex.ResultHeld, mutex.ResultRefused:
		write(l, slog.LevelDebug, "lock not acquired", e.Err, slog.String("lock", e.Name), waited)
	case mutex.ResultGaveUp:
		write(l, slog.LevelInfo, "gave up waiting for a lock", e.Err, slog.String("lock", e.Name), waited)
	default:
		write(l, slog.LevelWarn, "lock not acquired", e.Err, slog.String("lock", e.Name), waited)
	}
}

func extended(l *slog.Logger, e mutex.ExtendEnded) {
	switch {
	case e.Result == mutex.ResultExtended:
		write(l, slog.LevelDebug, "lock extended", nil,
			append(lockAttributes(e.Lock), slog.Bool("heartbeat", e.Heartbeat))...)
	case e.Result == mutex.ResultError && !e.Heartbeat:
		write(l, slog.LevelWarn, "lock not extended", e.Err, lockAttributes(e.Lock)...)
	}
}

func released(l *slog.Logger, e mutex.ReleaseEnded) {
	attributes := append(lockAttributes(e.Lock), slog.Duration("held", e.HoldTime))
	switch e.Result {
	case mutex.ResultReleased:
		write(l, slog.LevelDebug, "lock released", nil, attributes...)
	case mutex.ResultLost:
		write(l, slog.LevelWarn, "lock was lost before it was released", e.Err, attributes...)
	default:
		write(l, slog.LevelWarn, "lock not released yet", e.Err, attributes...)
	}
}

func lockAttributes(l *mutex.Lock) []slog.Attr {
	return []slog.Attr{slog.String("lock", l.Name()), slog.String("uuid", l.UUID()), slog.Int64("token", l.Token())}
}

func write(l *slog.Logger, level slog.Level, message string, err error, attributes ...slog.Attr) {
	if err != nil {
		attributes = append(attributes, slog.Any("error", err))
	}
	l.LogAttrs(context.Background(), level, message, attributes...)
}
