// Package flagdocs keeps docs/flags.md and docs/mutexctl.md equal to the flags and commands that our programs define.
// `make docs` writes both.
package flagdocs

import (
	"flag"
	"fmt"
	"os"
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
	checkPage(t, "flags.md", flagPage())
}

// checkPage compares a page of docs/ with its generated text, or writes it with -update.
func checkPage(t *testing.T, name, now string) {
	t.Helper()
	file := "../../../docs/" + name
	if *update {
		proctest.Must(t, os.WriteFile(file, []byte(now), 0o644))
	}
	written, err := os.ReadFile(file)
	proctest.Must(t, err)
	if string(written) != now {
		t.Errorf("docs/%s is out of date: make docs", name)
	}
}

func flagPage() string {
	shared := sharedFlags()
	own := func(c *cobra.Command, variables string) string { return without(flags.Table(c), variables, shared) }
	return fmt.Sprintf(`# Flags of the daemons

<!-- Written by `+"`make docs`"+` from the programs themselves. -->

For those who configure them. A flag is taken from, in this order: the command line; the variable of the program; for
the connection, the variable of etcdctl; the default. An empty variable counts as unset. Passwords are only taken from
files and variables, because everybody on the machine can read command lines. A wrong flag, an unreadable file or a
contradiction ends the program with one sentence and exit status 2; an etcd that is away does not: the program stays up,
is not ready, and goes on when etcd is back.

## All daemons

The variables begin with `+"`UNLOCKER_`"+`, also of a witness, or `+"`MUTEXDASH_`"+`.

%s
## unlocker

%s
## unlocker witness

%s
## mutexdash

%s
## mutexctl

The flags of the connection, the prefix and the log are those of [all daemons](#all-daemons), with variables that begin
with `+"`MUTEXCTL_`"+`. Its commands, with their flags and exit statuses, are in [mutexctl.md](mutexctl.md).
`, head+shared, own(unlocker.Command(), "UNLOCKER"), own(witness(), "UNLOCKER"), own(mutexdash.Command(), "MUTEXDASH"))
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
