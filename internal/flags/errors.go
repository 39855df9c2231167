package flags

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/daemon"
)

// UsageError is an invalid command line or environment.
type UsageError struct {
	Command string // the command to see --help of
	Err     error
}

func (e *UsageError) Error() string { return e.Err.Error() }

func (e *UsageError) Unwrap() error { return e.Err }

// ExitCode returns the exit status for usage errors.
func (e *UsageError) ExitCode() int { return 2 }

// Hint returns where to find help.
func (e *UsageError) Hint() string { return fmt.Sprintf("see %q", e.Command+" --help") }

// Main runs a daemon with the arguments of the process, until it ends, and returns its exit status.
func Main(root *cobra.Command) int {
	args := os.Args[1:]
	format := LogFormat(strings.TrimSuffix(root.Annotations[prefixAnnotation], "_"), args)
	return daemon.Main(root.Name(), format, func(ctx context.Context) error { return Execute(ctx, root, args) })
}

// Execute runs the command that args name. Every failure before its RunE is a *UsageError.
func Execute(ctx context.Context, root *cobra.Command, args []string) error {
	delete(root.Annotations, startedAnnotation)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if _, known := errors.AsType[*UsageError](err); err == nil || root.Annotations[startedAnnotation] != "" || known {
		return err
	}
	return &UsageError{Command: c.CommandPath(), Err: err}
}

func flagError(c *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if e.GetSpecifiedShortnames() != "" {
			return fmt.Errorf("there is no flag -%s", e.GetSpecifiedName())
		}
		if near := similarFlag(c, e.GetSpecifiedName()); near != "" {
			return fmt.Errorf("there is no flag --%s: did you mean --%s?", e.GetSpecifiedName(), near)
		}
		return fmt.Errorf("there is no flag --%s", e.GetSpecifiedName())
	}
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s cannot be %q: %w", e.GetFlag().Name, e.GetValue(), inWords(errors.Unwrap(e)))
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("--%s needs a value", e.GetFlag().Name)
	}
	return err
}

// inWords returns what a value should be, in place of an error of Go's packages.
func inWords(err error) error {
	if e, ok := errors.AsType[*strconv.NumError](err); ok {
		if e.Func == "ParseBool" {
			return errors.New("want true or false")
		}
		return errors.New("want a number")
	}
	if strings.HasPrefix(err.Error(), "time: ") {
		return errors.New("want a duration such as 30s or 5m")
	}
	return err
}

// similarFlag returns the name of a flag that is similar to name, "" if none is, as cobra finds similar commands.
func similarFlag(c *cobra.Command, name string) string {
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	for _, f := range sortedFlags(c) {
		if !f.Hidden {
			flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
		}
	}
	for _, similar := range flags.SuggestionsFor(name) {
		return similar
	}
	return ""
}
