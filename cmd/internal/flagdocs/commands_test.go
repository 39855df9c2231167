package flagdocs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/cmd/internal/mutexdash"
	"github.com/clustermutex/unlocker/cmd/internal/unlocker"
	"github.com/clustermutex/unlocker/internal/cli"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/lockjson"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func TestDocumentedCommandsMatchMutexctl(t *testing.T) {
	proctest.Golden(t, "../../../docs/mutexctl.md", *update, commandPage(cli.Command(cli.Process{})))
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
		"(flags.md#all-daemons), with variables that\nbegin with `MUTEXCTL_`; other flags have none. " +
		"Commands that take a NAME have `--escaped`: read the name in the form that\n" +
		"mutexctl prints (`\\x1b`, `\\u202e`, `\\\\`). " +
		"Besides, or with another default:\n\n")
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

// heading is how the help of a command or topic is asked for.
func heading(c *cobra.Command) string {
	if c.IsAdditionalHelpTopicCommand() {
		return "mutexctl help " + c.Name()
	}
	return c.CommandPath()
}

func anchor(c *cobra.Command) string { return strings.ReplaceAll(heading(c), " ", "-") }

func write(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n", heading(c))
	if c.Long == "" { // which begins with what Short says
		fmt.Fprintf(b, "\n%s.\n", c.Short)
	}
	if c.Runnable() {
		fmt.Fprintf(b, "\n```\n%s\n```\n", c.UseLine())
	}
	if c.Long != "" {
		text, _, members := strings.Cut(c.Long, "\n\n"+lockjson.ShapeOf(lockjson.Lock{}).Title+":\n")
		fmt.Fprintf(b, "\n```text\n%s\n```\n", strings.TrimSpace(text))
		if members {
			b.WriteString("\nThe members of all other objects are in [the JSON of a lock](json.md).\n")
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
	if own != "" && own != "| flag | default | meaning |\n|---|---|---|\n" {
		fmt.Fprintf(b, "\n%s", own)
	}
}

func TestProgramsPrintTheirVersionAlike(t *testing.T) {
	for _, args := range [][]string{{"version"}, {"--version"}} {
		for name, root := range map[string]func(out *os.File) *cobra.Command{
			"mutexctl":  func(out *os.File) *cobra.Command { return cli.Command(cli.Process{Stdout: out}) },
			"mutexdash": func(*os.File) *cobra.Command { return mutexdash.Command() },
			"unlocker":  func(*os.File) *cobra.Command { return unlocker.Command() },
		} {
			out, err := os.CreateTemp(t.TempDir(), "")
			proctest.Must(t, err)
			c := root(out)
			c.SetOut(out)
			c.SetArgs(args)
			err = errors.Join(c.ExecuteContext(t.Context()), out.Close())
			said, unread := os.ReadFile(out.Name())
			want := daemon.CurrentBuild().Line(name) + "\n"
			if err != nil || unread != nil || string(said) != want {
				t.Errorf("%s %s says %q, want %q (%v, %v)", name, args, said, want, err, unread)
			}
		}
	}
}

// A person at 3 am reads help on one screen: description, examples and the command's own flags, before the flags of all
// commands. The reference of the JSON is a topic.
func TestHelpOfACommandFitsAScreen(t *testing.T) {
	const most, columns = 50, 120
	for _, c := range commands(cli.Command(cli.Process{})) {
		if c.IsAdditionalHelpTopicCommand() {
			continue
		}
		if c.Example == "" && c.Parent() == c.Root() {
			t.Errorf("%s has no example", c.CommandPath())
		}
		var out bytes.Buffer
		root := c.Root()
		root.SetOut(&out)
		root.SetArgs(append(strings.Fields(c.CommandPath())[1:], "--help"))
		proctest.Must(t, root.ExecuteContext(t.Context()))
		own, _, found := strings.Cut(out.String(), "\n\nFlags of all commands, ")
		lines := strings.Split(own, "\n")
		if !found || len(lines) > most {
			t.Errorf("the help of %q has %d lines before the flags of all commands", c.CommandPath(), len(lines))
		}
		for _, line := range lines {
			if len(line) > columns {
				t.Errorf("the help of %q has a line of %d columns: %s", c.CommandPath(), len(line), line)
			}
		}
	}
}

// The kind of a value ("duration", or the word in backticks) stands beside the flag, in --help and in docs/flags.md. So
// the help may not rely on it as its first word.
func TestEveryFlagsHelpIsOneSentence(t *testing.T) {
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
