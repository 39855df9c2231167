package cli

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/locks"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// names reads the lock names of a command line.
type names struct{ escaped bool }

func (n *names) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&n.escaped, "escaped", false,
		`read the name in the form that mutexctl prints (\x1b, \u202e, \\)`)
}

// parse reads the name of an existing lock, which may be one that the protocol does not allow.
func (n *names) parse(arg string) (string, error) {
	if arg == "" {
		return "", usageErrorf("the lock name is empty")
	}
	if !n.escaped {
		return arg, nil
	}
	name, err := text.Parse(arg)
	if err != nil {
		return "", usageErrorf("the lock name %w", err)
	}
	return name, nil
}

// onLock makes cmd take the name of a lock, and call check, which checks the flags, then run.
func (n *names) onLock(cmd *cobra.Command, a *app, check func() error,
	run func(ctx context.Context, s *session, name string) error) {
	cmd.Args = argCount(1, 1, "NAME")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := n.parse(args[0])
		if err == nil && check != nil {
			err = check()
		}
		if err != nil {
			return err
		}
		return a.withSession(cmd.Context(), func(ctx context.Context, s *session) error { return run(ctx, s, name) })
	}
}

// parseValid reads the name of a lock to take.
func (n *names) parseValid(arg string) (string, error) {
	name, err := n.parse(arg)
	if err != nil {
		return "", err
	}
	if err := metadata.CheckName(name); err != nil {
		return "", &statusError{ExitUsage, err}
	}
	return name, nil
}

// listing is a command that shows what a query finds.
type listing struct {
	app    *app
	about  locks.About
	format *term.Format
	query  *locks.Query
}

// fromArguments makes cmd take the words of a query, and call run.
func (l *listing) fromArguments(cmd *cobra.Command, run func(context.Context) error) {
	suggestKeys(cmd)
	cmd.Args = argCount(0, -1, "[QUERY...]")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := l.parse(args); err != nil {
			return err
		}
		return run(cmd.Context())
	}
}

func (l *listing) parse(words []string) error {
	l.query = locks.ParseQuery(strings.Join(words, " "), l.about)
	if err := l.query.Err(); err != nil {
		return usageErrorf("%w", err)
	}
	return nil
}

// unknownKey returns why a query found nothing if a key seems to be misspelled; else it is empty.
func (l *listing) unknownKey(found int) string {
	term, key := l.query.UnknownKey()
	if term == "" || found > 0 {
		return ""
	}
	return text.Visible(term) + ": there is no key " + key + "; a name with a colon is written name:=NAME"
}

// suggestKeys makes cmd say of a flag that is the beginning of a key that queries are words.
func suggestKeys(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		e, _ := errors.AsType[*pflag.NotExistError](err)
		for _, f := range locks.TermsHelp() {
			key, _, isKey := strings.Cut(f.Term, ":")
			if e != nil && isKey && strings.HasPrefix(key, e.GetSpecifiedName()) {
				return usageErrorf("there is no flag --%s: did you mean the word %s?", e.GetSpecifiedName(), f.Term)
			}
		}
		return cmd.Parent().FlagErrorFunc()(cmd, err)
	})
}

// findsName reports whether the query finds something of which only the name is known.
func (l *listing) findsName(name string) bool {
	return l.query.Matches(&locks.Subject{Name: name}, l.app.Now())
}

// argCount checks the number of arguments; maxArgs is -1 for any number. Its error names them: argCount(1, 1, "NAME").
func argCount(minArgs, maxArgs int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < minArgs:
			return usageErrorf("%s is missing", names)
		case maxArgs >= 0 && len(args) > maxArgs:
			return usageErrorf("unexpected argument %s: want %s", text.Visible(args[maxArgs]),
				cmp.Or(names, "no argument"))
		}
		return nil
	}
}

// completeNames completes the names of held locks, of their shares, and of the locks that these are shares of. Names
// that could control the terminal are left out.
func (a *app) completeNames(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if err := flags.FromEnvironment(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var offers []string
	err := a.withSession(cmd.Context(), func(ctx context.Context, s *session) error {
		return s.store.ListRecords(ctx, begun, func(r *metadata.Record) bool {
			offers = append(offers, r.Name, r.QueueName())
			return true
		})
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	offers = slices.DeleteFunc(offers, func(name string) bool {
		return metadata.CheckName(name) != nil || text.Visible(name) != name || !strings.HasPrefix(name, begun)
	})
	slices.Sort(offers)
	return slices.Compact(offers), cobra.ShellCompDirectiveNoFileComp
}
