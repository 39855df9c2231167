// Package commanddocs keeps docs/mutexctl.md: the commands of mutexctl as they define themselves. `make docs` writes
// it.
package commanddocs

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli"
	"github.com/clustermutex/unlocker/internal/flags"
)

var update = flag.Bool("update", false, "write docs/mutexctl.md")

const file = "../../../docs/mutexctl.md"

func TestTheCommandsInTheDocumentationAreThoseOfMutexctl(t *testing.T) {
	now := page(cli.Command(cli.Process{}))
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
		t.Error("docs/mutexctl.md is out of date: make docs")
	}
}

func page(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(`# mutexctl: the commands

<!-- Written by ` + "`make docs`" + ` from the program itself. -->

Everything that ` + "`mutexctl COMMAND --help`" + ` says, on one page. For recipes see [locks in scripts](shell.md), for
the output of ` + "`-o json`" + ` [the JSON of a lock](json.md).

| command | |
|---|---|
`)
	for _, c := range commands(root) {
		fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", c.Name(), anchor(c), c.Short)
	}
	for _, c := range commands(root) {
		write(&b, c)
	}
	fmt.Fprintf(&b, "\n## Flags of all commands\n\n%s", flags.Table(root))
	return b.String()
}

// commands are those with help of their own, topics included.
func commands(root *cobra.Command) []*cobra.Command {
	var found []*cobra.Command
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
			found = append(found, c)
		}
	}
	return found
}

func anchor(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func write(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n", c.CommandPath(), c.Short)
	if c.Runnable() {
		fmt.Fprintf(b, "\n```\n%s\n```\n", c.UseLine())
	}
	if c.Long != "" {
		fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(c.Long))
	}
	if c.Example != "" {
		fmt.Fprintf(b, "\n```sh\n%s\n```\n", unindented(c.Example))
	}
	if table := flags.OwnTable(c); table != "" {
		fmt.Fprintf(b, "\n%s", table)
	}
}

// unindented removes the two blanks that examples begin with in --help.
func unindented(example string) string {
	lines := strings.Split(strings.TrimRight(example, "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}
