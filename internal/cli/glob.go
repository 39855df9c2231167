package cli

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// globs matches lock names: * stands for any text, also with slashes, ? for one character. No globs match every name.
type globs []*regexp.Regexp

func newGlobs(patterns []string) (globs, error) {
	var g globs
	for _, p := range patterns {
		text := regexp.QuoteMeta(p)
		text = strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(text)
		re, err := regexp.Compile("(?s)^" + text + "$")
		if err != nil {
			return nil, usagef("pattern %s: not valid UTF-8", visible(p))
		}
		g = append(g, re)
	}
	return g, nil
}

func (g globs) match(name string) bool {
	for _, re := range g {
		if re.MatchString(name) {
			return true
		}
	}
	return len(g) == 0
}

// wants makes a check for the number of arguments, with a sentence that names them: wants(1, 1, "NAME").
func wants(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return usagef("%s is missing", names)
		case most >= 0 && len(args) > most:
			return usagef("%s is too much: want %s", visible(args[most]), orNothing(names))
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
