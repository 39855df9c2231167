package etcdconn

import (
	"github.com/rs/zerolog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// zapLogger lets etcd's client write to log, but at lower levels: it warns of every failed call, while the caller,
// which gets the error, knows better whether it matters.
func zapLogger(log zerolog.Logger) *zap.Logger {
	return zap.New(zapCore{log: log.With().Str("component", "etcd-client").Logger()})
}

type zapCore struct {
	log    zerolog.Logger
	fields []zapcore.Field
}

func (c zapCore) Enabled(l zapcore.Level) bool {
	level := lower(l)
	return level >= c.log.GetLevel() && level >= zerolog.GlobalLevel()
}

func (c zapCore) With(fields []zapcore.Field) zapcore.Core {
	c.fields = append(c.fields[:len(c.fields):len(c.fields)], fields...)
	return c
}

func (c zapCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range append(c.fields[:len(c.fields):len(c.fields)], fields...) {
		f.AddTo(values)
	}
	c.log.WithLevel(lower(e.Level)).Fields(values.Fields).Msg(e.Message)
	return nil
}

func (zapCore) Sync() error { return nil }

func lower(l zapcore.Level) zerolog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return zerolog.WarnLevel
	case l >= zapcore.WarnLevel:
		return zerolog.DebugLevel
	default:
		return zerolog.TraceLevel
	}
}
