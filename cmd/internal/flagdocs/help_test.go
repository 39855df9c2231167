package flagdocs

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/cli"
)

// The kind of a value ("duration", or the word in backticks) stands beside the flag, in --help and in docs/flags.md. So
// the help may not rely on it as its first word.
func TestTheHelpOfEveryFlagIsASentenceByItself(t *testing.T) {
	found := 0
	for _, root := range []*cobra.Command{unlocker.Command(), mutexdash.Command(), cli.Command(cli.Process{})} {
		visit(root, func(c *cobra.Command, f *pflag.Flag) {
			found++
			kind, text := pflag.UnquoteUsage(f)
			where := c.CommandPath() + " --" + f.Name
			if f.Value.Type() == "duration" && kind != "duration" {
				t.Errorf("%s: the kind of its value is %q, which says nothing of how a duration is written", where,
					kind)
			}
			first, _, _ := strings.Cut(text, " ")
			switch strings.Trim(first, ",;:") {
			case "", "that", "who", "whose", "of", "for", "to", "after", "before", "below", "is", "and", "or":
				t.Errorf("%s: its help begins in the middle: %q", where, text)
			}
			if strings.Contains(text, "`") || strings.Contains(text, "  ") {
				t.Errorf("%s: what was quoted is still seen: %q", where, text)
			}
		})
	}
	if found < 100 {
		t.Errorf("only %d flags were found", found)
	}
}

// visit calls do for each flag that a command or one below it defines.
func visit(c *cobra.Command, do func(*cobra.Command, *pflag.Flag)) {
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) { do(c, f) })
	for _, below := range c.Commands() {
		visit(below, do)
	}
}
