package cli

import (
	"regexp"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/text"
)

// globs selects lock names. The zero value selects all of them.
type globs struct{ names *regexp.Regexp }

func newGlobs(patterns []string) (globs, error) {
	if len(patterns) == 0 {
		return globs{}, nil
	}
	names, err := text.Globs(patterns...)
	if err != nil {
		return globs{}, usagef("%w", err)
	}
	return globs{names}, nil
}

func (g globs) match(name string) bool { return g.names == nil || g.names.MatchString(name) }

// wants makes a check for the number of arguments, with a sentence that names them: wants(1, 1, "NAME").
func wants(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s is missing", names)
		case most >= 0 && len(args) > most:
			return usagef("%s is too much: want %s", text.Visible(args[most]), orNothing(names))
		}
		return nil
	}
}

func orNothing(names string) string {
	if names == "" {
		return "no argument"
	}
	return names
}
