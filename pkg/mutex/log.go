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
