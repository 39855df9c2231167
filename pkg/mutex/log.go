package mutex

import (
	"context"
	"log/slog"
)

// logger logs what cannot be returned to any caller. The zero logger is silent.
type logger struct{ to *slog.Logger }

// log adds a line. Attributes are strings, numbers, durations and errors.
func (l logger) log(level slog.Level, message string, attributes ...slog.Attr) {
	if l.to != nil {
		l.to.LogAttrs(context.Background(), level, message, attributes...)
	}
}
