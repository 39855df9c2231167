package mutex

import (
	"context"
	"log/slog"

	"github.com/rs/zerolog"
)

// line writes what no caller can be told to the loggers of the options, one or both. Attributes are strings, numbers, durations and
// errors.
func (c *Client) line(level slog.Level, message string, attributes ...slog.Attr) {
	if e := c.opts.Log.WithLevel(zerologLevel(level)); e != nil && zerologLevel(level) >= c.opts.Log.GetLevel() {
		for _, a := range attributes {
			e = field(e, a)
		}
		e.Msg(message)
	}
	if c.opts.Logger != nil {
		c.opts.Logger.LogAttrs(context.Background(), level, message, attributes...)
	}
}

func field(e *zerolog.Event, a slog.Attr) *zerolog.Event {
	switch a.Value.Kind() {
	case slog.KindString:
		return e.Str(a.Key, a.Value.String())
	case slog.KindInt64:
		return e.Int64(a.Key, a.Value.Int64())
	case slog.KindDuration:
		return e.Dur(a.Key, a.Value.Duration())
	}
	if err, ok := a.Value.Any().(error); ok {
		return e.AnErr(a.Key, err)
	}
	return e.Interface(a.Key, a.Value.Any())
}

func zerologLevel(l slog.Level) zerolog.Level {
	switch {
	case l < slog.LevelInfo:
		return zerolog.DebugLevel
	case l < slog.LevelWarn:
		return zerolog.InfoLevel
	case l < slog.LevelError:
		return zerolog.WarnLevel
	}
	return zerolog.ErrorLevel
}

// about are the attributes of a hold.
func (l *Lock) about(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.String("lock", l.held.Lock), slog.String("uuid", l.held.UUID), slog.Int64("token", l.held.Token)}, more...)
}
