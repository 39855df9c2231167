package daemon

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
)

// hangups is the context key of the channel of SIGHUPs.
type hangups struct{}

// Reloadable returns run with a context in which [Reload] receives SIGHUP. Without it, SIGHUP ends the program.
func Reloadable(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGHUP)
		defer signal.Stop(signals)
		return run(context.WithValue(ctx, hangups{}, signals))
	}
}

// Reload handles SIGHUP, which `systemctl reload` sends: it checks the program's files and uses them as they are now.
// Files that a program rereads by itself need no reload.
type Reload struct {
	// Check returns one sentence about what is wrong with the files. Then none of them is used, and the program keeps
	// what it has.
	Check func() error
	// Use applies them, and returns how many connections to etcd it closed.
	Use func() (connections int)
	Log zerolog.Logger
}

// Run waits for SIGHUP until ctx ends.
func (r Reload) Run(ctx context.Context) error {
	signals, _ := ctx.Value(hangups{}).(chan os.Signal) // nil, which blocks forever, without Reloadable
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-signals:
		}
		if err := r.Check(); err != nil {
			r.Log.Error().Err(err).Msg("the files cannot be used, so the reload changes nothing")
			continue
		}
		r.Log.Info().Int("connections", r.Use()).
			Msg("the files were reread, and connections to etcd that used older ones are replaced")
	}
}
