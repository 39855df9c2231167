// Package flagdocs keeps docs/flags.md and docs/mutexctl.md equal to the flags and commands that our programs define.
// `make docs` writes both.
package flagdocs

import (
	"flag"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

var update = flag.Bool("update", false, "write the pages")

func TestDocumentedFlagsMatchThePrograms(t *testing.T) {
	shared := sharedFlags()
	own := func(c *cobra.Command, variables string) string { return without(flags.Table(c), variables, shared) }
	proctest.DocumentedTables(t, "../../../docs/flags.md", *update, map[string]string{
		"All daemons": head + shared, "unlocker": own(unlocker.Command(), "UNLOCKER"),
		"unlocker witness": own(witness(), "UNLOCKER"), "mutexdash": own(mutexdash.Command(), "MUTEXDASH"),
	})
}

// sharedFlags are the lines that the tables of all daemons have, with variables that begin with an ellipsis.
func sharedFlags() (shared string) {
	unlockers := neutral(flags.Table(unlocker.Command()), "UNLOCKER")
	witnesses := neutral(flags.Table(witness()), "UNLOCKER")
	for line := range strings.Lines(neutral(flags.Table(mutexdash.Command()), "MUTEXDASH")) {
		if strings.HasPrefix(line, "| `--") && strings.Contains(unlockers, line) && strings.Contains(witnesses, line) {
			shared += line
		}
	}
	return shared
}

// neutral has an ellipsis for the first word of the variables.
func neutral(table, variables string) string {
	return strings.ReplaceAll(table, "`"+variables+"_", "`…_")
}

const head = "| flag | default | environment | meaning |\n|---|---|---|---|\n"

// without is a table of a program without the lines that all have.
func without(table, variables, shared string) (own string) {
	for line := range strings.Lines(table) {
		if !strings.Contains(shared, neutral(line, variables)) {
			own += line
		}
	}
	return own
}

// witness is the command of the unlocker that runs a witness.
func witness() *cobra.Command {
	cmd, _, err := unlocker.Command().Find([]string{"witness"})
	if err != nil {
		panic(err)
	}
	return cmd
}
