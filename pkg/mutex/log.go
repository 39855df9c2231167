package mutex

import (
	"context"
	"log/slog"
)

// log logs what no caller can be told. Attributes are strings, numbers, durations and errors.
func (c *Client) log(level slog.Level, message string, attributes ...slog.Attr) {
	if c.opts.Logger != nil {
		c.opts.Logger.LogAttrs(context.Background(), level, message, attributes...)
	}
}

// about are the attributes of a hold.
func (l *Lock) about(more ...slog.Attr) []slog.Attr {
	return append([]slog.Attr{slog.String("lock", l.held.Lock), slog.String("uuid", l.held.UUID),
		slog.Int64("token", l.held.Token)}, more...)
}
