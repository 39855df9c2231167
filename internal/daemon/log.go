package daemon

import (
	"context"
	"io"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// LogSettings describe what is logged and how.
type LogSettings struct {
	Level  string // trace, debug, info, warn or error
	Format string // json, console, or auto: console on a terminal, and json elsewhere
}

// Logger returns a logger that writes to w, as JSON or for people, with times in UTC. If the level is invalid, it is
// info.
func Logger(s LogSettings, w *os.File) zerolog.Logger {
	level, err := zerolog.ParseLevel(s.Level)
	if err != nil || s.Level == "" {
		level = zerolog.InfoLevel
	}
	var out io.Writer = w
	if s.isConsole(w) {
		out = zerolog.ConsoleWriter{
			Out: w, TimeFormat: "15:04:05.000", TimeLocation: time.UTC,
			NoColor: os.Getenv("NO_COLOR") != "" || !term.IsTerminal(int(w.Fd())),
		}
	}
	return zerolog.New(out).Level(level).Hook(zerolog.HookFunc(stamp))
}

func (s LogSettings) isConsole(w *os.File) bool {
	return s.Format == "console" || s.Format != "json" && term.IsTerminal(int(w.Fd()))
}

// stamp adds the time. zerolog would use a global format and the local time zone.
func stamp(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().UTC().Format("2006-01-02T15:04:05.000Z"))
}

func slogLogger(log zerolog.Logger) *slog.Logger {
	return slog.New(withoutTime{zerolog.NewSlogHandler(log)})
}

// withoutTime removes the time of records, because stamp adds it.
type withoutTime struct{ slog.Handler }

func (h withoutTime) Handle(ctx context.Context, r slog.Record) error {
	r.Time = time.Time{}
	return h.Handler.Handle(ctx, r)
}

// stdLogger returns a logger for net/http, whose messages are warnings about clients.
func stdLogger(l zerolog.Logger) *log.Logger {
	return slog.NewLogLogger(slogLogger(l).Handler(), slog.LevelWarn)
}
