package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// The exit statuses of daemons.
const (
	ExitOK      = 0
	ExitFailure = 1 // something failed while running
	ExitUsage   = 2 // a wrong flag, variable or file: retrying does not help
)

// Main runs a program until it ends or is told to end, and returns its exit status. The first SIGTERM or SIGINT ends
// the context; the second ends the process at once. An error is printed as one sentence, with its hint if it has one.
func Main(name string, run func(context.Context) error) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	go func() {
		cancel(fmt.Errorf("signal: %s", <-signals))
		<-signals
		fmt.Fprintf(os.Stderr, "%s: second signal: ended without finishing what was in flight\n", name)
		os.Exit(ExitFailure)
	}()
	return complain(os.Stderr, name, run(ctx))
}

func complain(w io.Writer, name string, err error) int {
	if err == nil {
		return ExitOK
	}
	sentence := strings.ReplaceAll(err.Error(), "\n", "; ")
	var hint interface{ Hint() string }
	if errors.As(err, &hint) {
		sentence += "; " + hint.Hint()
	}
	fmt.Fprintf(w, "%s: %s\n", name, sentence)
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return ExitFailure
}

// Usage marks an error as one of usage or configuration. Usage(nil) is nil.
func Usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }
func (e *usageError) ExitCode() int { return ExitUsage }
