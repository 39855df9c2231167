package flags

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usage prints what follows the description in --help: every flag of the command with its default, in groups, and the
// names of inherited flags, which the help of the root command describes.
func usage(c *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n")
	if c.Runnable() {
		fmt.Fprintf(&b, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "  %s [command]\n", c.CommandPath())
	}
	if len(c.Aliases) > 0 {
		fmt.Fprintf(&b, "\nAliases:\n  %s\n", c.NameAndAliases())
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	printCommands(&b, c)
	described := ownFlags(c)
	if c.HasParent() { // every command has --help: that of the root describes it
		described = slices.DeleteFunc(described, func(f *pflag.Flag) bool { return f.Name == "help" })
	}
	for _, g := range groups(described) {
		fmt.Fprintf(&b, "\n%s:\n", g.title)
		for _, f := range g.flags {
			printFlag(&b, c, f)
		}
	}
	printVariables(&b, c)
	printInherited(&b, c)
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\nUse \"%s [command] --help\" for more about a command.\n", c.CommandPath())
	}
	_, err := io.WriteString(c.OutOrStderr(), b.String())
	return err
}

func printCommands(w io.Writer, c *cobra.Command) {
	for _, g := range append(c.Groups(), &cobra.Group{Title: "Commands"}) {
		heading := "\n" + g.Title + ":\n"
		for _, below := range c.Commands() {
			listed := below.IsAvailableCommand() || below.Name() == "help" || below.IsAdditionalHelpTopicCommand()
			if below.GroupID == g.ID && listed {
				fmt.Fprintf(w, "%s  %-*s %s\n", heading, below.NamePadding(), below.Name(), below.Short)
				heading = ""
			}
		}
	}
}

// A flag's help begins in textColumn, beside its name. If it does not fit there, it is on the next line.
const (
	textColumn  = 32
	helpColumns = 120
)

func printFlag(w io.Writer, c *cobra.Command, f *pflag.Flag) {
	kind, text := pflag.UnquoteUsage(f)
	name := "      --" + f.Name
	if f.Shorthand != "" {
		name = "  -" + f.Shorthand + ", --" + f.Name
	}
	name = strings.TrimRight(name+" "+kind, " ")
	var facts []string
	if d := defaultOf(f); d != "" {
		facts = append(facts, "default "+d)
	}
	if v := variableNames(c, f); len(v) > 1 {
		facts = append(facts, "also $"+strings.Join(v[1:], ", $"))
	}
	if len(facts) > 0 {
		text += " [" + strings.Join(facts, "; ") + "]"
	}
	if len(name)+2 > textColumn || textColumn+len(text) > helpColumns {
		fmt.Fprintf(w, "%s\n          %s\n", name, text)
		return
	}
	fmt.Fprintf(w, "%-*s%s\n", textColumn, name, text)
}

// printVariables names the variable of one flag: those of the others are alike.
func printVariables(w io.Writer, c *cobra.Command) {
	for _, f := range ownFlags(c) {
		if v := variableNames(c, f); len(v) > 0 {
			fmt.Fprintf(w, "\nEnvironment: $%s for --%s, and so on.\n", v[0], f.Name)
			return
		}
	}
}

func printInherited(w io.Writer, c *cobra.Command) {
	inherited := groups(inheritedFlags(c))
	if len(inherited) == 0 {
		return
	}
	fmt.Fprintf(w, "\nFlags of all commands, described by \"%s --help\":\n", c.Root().Name())
	for _, g := range inherited {
		line := "  " + g.title + ":"
		for _, f := range g.flags {
			if len(line)+len(f.Name) > 100 {
				fmt.Fprintln(w, line)
				line = "     "
			}
			line += " --" + f.Name
		}
		fmt.Fprintln(w, line)
	}
}

// defaultOf returns "" if there is no default worth showing.
func defaultOf(f *pflag.Flag) string {
	switch d := strings.TrimSuffix(strings.TrimPrefix(f.DefValue, "["), "]"); {
	case f.Name == "help", f.Name == "version", d == "" || d == "false":
		return ""
	case f.Value.Type() == "duration":
		return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d)
	default:
		return d
	}
}

func variableNames(c *cobra.Command, f *pflag.Flag) (all []string) {
	for _, v := range variables(c, f) {
		all = append(all, v.name)
	}
	return all
}

// group holds the flags with the same word before the first dot.
type group struct {
	title string
	flags []*pflag.Flag
}

// groups sorts flags: those without a dot first, then the groups in order of definition, with those that all programs
// share last.
func groups(flags []*pflag.Flag) []group {
	var own, shared []string
	members := map[string][]*pflag.Flag{}
	for _, f := range flags {
		name, _, dotted := strings.Cut(f.Name, ".")
		if !dotted {
			name = ""
		}
		switch {
		case members[name] != nil:
		case titles()[name] != "":
			shared = append(shared, name)
		case name == "":
			own = append([]string{name}, own...)
		default:
			own = append(own, name)
		}
		members[name] = append(members[name], f)
	}
	var all []group
	for _, name := range append(own, shared...) {
		all = append(all, group{title(name), members[name]})
	}
	return all
}

// ownFlags returns the flags that the command itself defines.
func ownFlags(c *cobra.Command) []*pflag.Flag { return visibleFlags(c.LocalFlags()) }

func inheritedFlags(c *cobra.Command) []*pflag.Flag { return visibleFlags(c.InheritedFlags()) }

func visibleFlags(fs *pflag.FlagSet) (all []*pflag.Flag) {
	fs.SortFlags = false
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			all = append(all, f)
		}
	})
	return all
}

func title(name string) string {
	if t := titles()[name]; t != "" {
		return t
	}
	if name == "" {
		return "Flags"
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

func titles() map[string]string {
	return map[string]string{"locks": "Locks", "etcd": "Connection to etcd", "web": "HTTP server", "log": "Log"}
}

// Table lists the flags of a command in Markdown, including those of the commands above it.
func Table(c *cobra.Command) string {
	return table(c, append(ownFlags(c), inheritedFlags(c)...), true)
}

// OwnTable lists in Markdown the flags that the command itself defines, without variables. It is empty if there are
// none except --help.
func OwnTable(c *cobra.Command) string { return table(c, ownFlags(c), false) }

func table(c *cobra.Command, flags []*pflag.Flag, variables bool) string {
	c.InitDefaultHelpFlag()
	var b strings.Builder
	for _, g := range groups(flags) {
		for _, f := range g.flags {
			if f.Name == "help" {
				continue
			}
			kind, text := pflag.UnquoteUsage(f)
			cells := []string{code(strings.TrimRight("--"+f.Name+" "+kind, " ")), code(defaultOf(f))}
			if variables {
				cells = append(cells, code(strings.Join(variableNames(c, f), "` `")))
			}
			cells = append(cells, strings.NewReplacer("|", "\\|", "\n", " ").Replace(text))
			fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	if !variables {
		return "| flag | default | meaning |\n|---|---|---|\n" + b.String()
	}
	return "| flag | default | environment | meaning |\n|---|---|---|---|\n" + b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
