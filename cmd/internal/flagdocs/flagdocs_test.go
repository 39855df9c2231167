// Package flagdocs keeps docs/flags.md and docs/mutexctl.md equal to the flags and commands that our programs define.
// `make docs` writes both.
package flagdocs

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/flags"
)

var update = flag.Bool("update", false, "write the pages")

func TestTheFlagsInTheDocumentationAreThoseOfThePrograms(t *testing.T) {
	checkPage(t, "flags.md", flagPage())
}

// checkPage compares a page of docs/ with its generated text, or writes it with -update.
func checkPage(t *testing.T, name, now string) {
	t.Helper()
	file := "../../../docs/" + name
	if *update {
		if err := os.WriteFile(file, []byte(now), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(written) != now {
		t.Errorf("docs/%s is out of date: make docs", name)
	}
}

func flagPage() string {
	return fmt.Sprintf(`# Flags of the daemons

<!-- Written by `+"`make docs`"+` from the programs themselves. -->

A flag is taken from, in this order: the command line; the variable of the program; for the connection, the variable of
etcdctl; the default. An empty variable counts as unset. Passwords are only taken from files and variables, because
everybody on the machine can read command lines. A wrong flag, an unreadable file or a contradiction ends the program
with one sentence and exit status 2; an etcd that is away does not: the program stays up, is not ready, and goes on when
etcd is back.

## unlocker

%s
## unlocker witness

%s
## mutexdash

%s
## mutexctl

The flags of the connection, the prefix and the log are the same, with variables that begin with `+"`MUTEXCTL_`"+`. Its
commands, with their flags and exit statuses, are in [mutexctl.md](mutexctl.md).
`, flags.Table(unlocker.Command()), flags.Table(witness()), flags.Table(mutexdash.Command()))
}

// witness is the command of the unlocker that runs a witness.
func witness() *cobra.Command {
	cmd, _, err := unlocker.Command().Find([]string{"witness"})
	if err != nil {
		panic(err)
	}
	return cmd
}
