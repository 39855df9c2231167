package flagdocs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli"
	"github.com/clustermutex/unlocker/internal/flags"
)

func TestTheCommandsInTheDocumentationAreThoseOfMutexctl(t *testing.T) {
	checkPage(t, "mutexctl.md", commandPage(cli.Command(cli.Process{})))
}

func commandPage(root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(`# mutexctl: the commands

<!-- Written by ` + "`make docs`" + ` from the program itself. -->

For those who type or script it: what ` + "`mutexctl COMMAND --help`" + ` says, on one page. The members of JSON are in
[the JSON of a lock](json.md). For recipes see [locks in scripts](shell.md).
`)
	for _, g := range root.Groups() {
		fmt.Fprintf(&b, "\n%s:\n\n| command | |\n|---|---|\n", g.Title)
		for _, c := range commands(root) {
			if c.GroupID == g.ID {
				fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", c.Name(), anchor(c), c.Short)
			}
		}
	}
	for _, c := range commands(root) {
		write(&b, c)
	}
	b.WriteString("\n## Flags of all commands\n\nThose of the connection, the prefix and the log are [the daemons']" +
		"(flags.md#all-daemons). Commands that take a NAME have `--escaped` (`MUTEXCTL_ESCAPED`): read the name in\n" +
		"the form that mutexctl prints (`\\x1b`, `\\u202e`, `\\\\`). Besides, or with another default:\n\n")
	b.WriteString(without(flags.Table(root), "MUTEXCTL", sharedFlags()))
	return b.String()
}

// commands returns the commands and topics that have help.
func commands(root *cobra.Command) []*cobra.Command {
	var found []*cobra.Command
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
			found = append(found, c)
		}
		if c.Name() != "completion" { // whose commands are the same for each shell
			found = append(found, commands(c)...)
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
		text, _, members := strings.Cut(c.Long, "JSON: one object per line. Members are added ")
		fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(text))
		if members {
			b.WriteString("\nJSON: one object per line, with the members of [the JSON of a lock](json.md).\n")
		}
	}
	if c.Example != "" {
		example := strings.ReplaceAll("\n"+strings.TrimRight(c.Example, "\n"), "\n  ", "\n") // as --help indents it
		fmt.Fprintf(b, "\n```sh%s\n```\n", example)
	}
	var own string
	for line := range strings.Lines(flags.OwnTable(c)) {
		if !strings.HasPrefix(line, "| `--escaped` ") { // said once, at the end
			own += line
		}
	}
	if own != "" && own != head {
		fmt.Fprintf(b, "\n%s", own)
	}
}
