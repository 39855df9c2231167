package flags

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Manual is a page for man(1) about one command.
type Manual struct {
	Command *cobra.Command
	Section int // 1: a command of users; 8: of administrators
	Version string
	Files   [][2]string // a path, and what the program uses it for
}

// Name returns the name of the page: mutexctl-run for "mutexctl run".
func (m Manual) Name() string { return strings.ReplaceAll(m.Command.CommandPath(), " ", "-") }

// Page returns the page in the macros of man(7).
func (m Manual) Page() string {
	c := m.Command
	c.InitDefaultHelpFlag()
	b := &strings.Builder{}
	fmt.Fprintf(b, ".TH \"%s\" \"%d\" \"\" \"%s\" \"Distributed locks\"\n", roff(strings.ToUpper(m.Name())), m.Section,
		roff("unlocker "+m.Version))
	fmt.Fprintf(b, ".SH NAME\n%s \\- %s\n", roff(m.Name()), roff(c.Short))
	if c.Runnable() {
		fmt.Fprintf(b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", roff(c.UseLine()))
	}
	if c.Long != "" {
		b.WriteString(".SH DESCRIPTION\n" + prose(c.Long))
	}
	m.commands(b)
	m.options(b)
	if len(m.Files) > 0 {
		b.WriteString(".SH FILES\n")
		for _, file := range m.Files {
			fmt.Fprintf(b, ".TP\n.I %s\n%s\n", roff(file[0]), roff(file[1]))
		}
	}
	if c.HasExample() {
		fmt.Fprintf(b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(strings.TrimRight(c.Example, "\n")))
	}
	if c.HasParent() {
		fmt.Fprintf(b, ".SH \"SEE ALSO\"\n.BR %s (%d)\n", roff(Manual{Command: c.Root()}.Name()), m.Section)
	}
	return b.String()
}

// commands lists the pages of the commands below.
func (m Manual) commands(b *strings.Builder) {
	heading := ".SH COMMANDS\n"
	for _, below := range m.Command.Commands() {
		if below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
			fmt.Fprintf(b, "%s.TP\n.BR %s (%d)\n%s\n", heading, roff(Manual{Command: below}.Name()), m.Section,
				roff(below.Short))
			heading = ""
		}
	}
}

func (m Manual) options(b *strings.Builder) {
	heading := ".SH OPTIONS\n"
	for _, g := range groups(append(ownFlags(m.Command), inheritedFlags(m.Command)...)) {
		fmt.Fprintf(b, "%s.SS \"%s\"\n", heading, roff(g.title))
		heading = ""
		for _, f := range g.flags {
			kind, text := pflag.UnquoteUsage(f)
			name := "--" + f.Name
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			fmt.Fprintf(b, ".TP\n\\fB%s\\fR", roff(name))
			if kind != "" {
				fmt.Fprintf(b, " \\fI%s\\fR", roff(kind))
			}
			fmt.Fprintf(b, "\n%s\n", roff(text))
			if d := defaultOf(f); d != "" {
				fmt.Fprintf(b, ".br\nDefault: %s\n", roff(d))
			}
			if v := variableNames(m.Command, f); len(v) > 0 {
				fmt.Fprintf(b, ".br\nEnvironment: %s\n", roff(strings.Join(v, ", ")))
			}
		}
	}
}

// prose sets paragraphs. A paragraph with an indented line keeps its lines.
func prose(text string) string {
	var b strings.Builder
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if b.Len() > 0 {
			b.WriteString(".PP\n")
		}
		if strings.ContainsAny(paragraph[:1], " \t") || strings.Contains(paragraph, "\n ") ||
			strings.Contains(paragraph, "\n\t") {
			fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(paragraph))
		} else {
			fmt.Fprintf(&b, "%s\n", roff(paragraph))
		}
	}
	return b.String()
}

// roff escapes text so that it is printed literally.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, `"`, `\(dq`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
