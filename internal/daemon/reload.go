package daemon

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/rs/zerolog"
)

// hangups is the key under which a context has the channel of SIGHUPs.
type hangups struct{}

// Reloadable is run with a context in which [Reload] hears SIGHUP. A program without it ends with SIGHUP, as its
// terminal does.
func Reloadable(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, syscall.SIGHUP)
		defer signal.Stop(signals)
		return run(context.WithValue(ctx, hangups{}, signals))
	}
}

// Reload answers SIGHUP, by which `systemctl reload` asks for it: the files of the program are checked and used as they
// are now. All that a program reads again by itself needs no reload.
type Reload struct {
	// Check says in one sentence what is wrong with the files. Then none of them is used, and the program goes on with
	// what it has.
	Check func() error
	// Use uses them, and returns how many connections to etcd it ended for that.
	Use func() (connections int)
	Log zerolog.Logger
}

// Run waits for SIGHUP until ctx ends.
func (r Reload) Run(ctx context.Context) error {
	signals, _ := ctx.Value(hangups{}).(chan os.Signal) // nil: it never comes
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
			Msg("the files were read again; so many connections to etcd were made with older ones and are made anew")
	}
}
