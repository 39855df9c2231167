package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/cli/childproc"
	"github.com/clustermutex/unlocker/internal/daemon"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/text"
)

// Main runs one command line and returns the exit status of the process. INT and TERM end the command.
func Main(ctx context.Context, p Process) int {
	if len(p.Args) == 1 && p.Args[0] == childproc.GuardArgument {
		return childproc.Guard()
	}
	ctx, stop := childproc.UntilSignal(ctx)
	defer stop()
	a := &app{Process: p}
	root := newRoot(a)
	root.SetArgs(p.Args)
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && a.command == "" { // a wrong flag or argument: no command has begun
		err = &statusError{ExitUsage, err}
	}
	err = a.asPlugin(cmd, err)
	printError(p.Stderr, cmd, err)
	return status(err)
}

// printError writes an error as one sentence; for a usage error it points to the help.
func printError(w io.Writer, cmd *cobra.Command, err error) {
	var sig childproc.SignalError
	switch {
	case err == nil, isReported(err), errors.As(err, &sig):
	case status(err) == ExitUsage:
		fmt.Fprintf(w, "%s: %s; see \"%s --help\"\n", cmd.CommandPath(), text.Prose(err.Error()), cmd.CommandPath())
	default:
		fmt.Fprintf(w, "%s: %s\n", cmd.CommandPath(), text.Prose(err.Error()))
	}
}

// Command returns the command tree of Main, for generating documentation.
func Command(p Process) *cobra.Command { return newRoot(&app{Process: p}) }

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "mutexctl",
		Short: "Distributed locks for etcd that show who holds what, and why",
		Long: `mutexctl takes, shows and ends locks in etcd.

Lock names may contain spaces and slashes: mutexctl show 'billing/invoice run'. Unprintable
characters are shown as escapes (\x1b, \u202e, \\); with --escaped, names are read in that form.`,
		Example: `  mutexctl list
  mutexctl run nightly/report -- ./report.sh
  mutexctl show nightly/report`,
		Args: unknownCommand,
	}
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) { a.command = cmd.CommandPath() }
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	a.sharedFlags(root.PersistentFlags())
	group := func(id, title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: id, Title: title})
		for _, c := range commands {
			c.GroupID = id
		}
		root.AddCommand(commands...)
	}
	group("run", "Run something under a lock", newRun(a), newAlive(a), newUnlock(a), newReserve(a), newWait(a))
	group("look", "See who holds what, and why", newList(a), newShow(a), newWatch(a), newHistory(a), newCheck(a),
		newPeriods(a), newTasks(a))
	group("act", "Act as an operator, on record", newAck(a), newAsk(a), newExtend(a), newForceUnlock(a))
	group(setupGroup, "Set up", newEtcdSetup(a), newVersion(a))
	group("topics", "Topics of \"mutexctl help\"", newExitCodesTopic(), newJSONTopic(), newQueryTopic())
	cobraCommands(root)
	flags.Version(root, daemon.CurrentBuild().Line("mutexctl"))
	flags.BindShared(root, "MUTEXCTL")
	return root
}

// setupGroup also has cobra's own commands.
const setupGroup = "setup"

// cobraCommands adds the commands help and completion, with examples and checks that cobra does not provide.
func cobraCommands(root *cobra.Command) {
	root.SetCompletionCommandGroupID(setupGroup)
	root.SetHelpCommandGroupID(setupGroup)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.Example = "  mutexctl help run\n  mutexctl help exit-codes"
			c.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err != nil || found == root {
					return unknownCommand(root, rest)
				}
				return nil
			}
		case "completion":
			c.Args = unknownCommand
			c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
			c.Example = "  source <(mutexctl completion bash)\n  mutexctl completion zsh >\"${fpath[1]}/_mutexctl\""
			for _, shell := range c.Commands() {
				shell.Example = "  mutexctl completion " + shell.Name()
			}
		}
	}
}

// sharedFlags defines the flags of all commands. The log has only warnings, because commands report their own outcome.
func (a *app) sharedFlags(fs *pflag.FlagSet) {
	a.etcd = flags.Etcd(fs)
	a.locks = flags.Locks(fs)
	log := flags.Log(fs, "warn")
	a.log = func() zerolog.Logger { return a.Log(log.Level, log.Format) }
}

func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	known := cobra.Command{SuggestionsMinimumDistance: 2}
	for _, c := range cmd.Commands() { // cobra suggests only what runs, which the topics of help do not
		known.AddCommand(&cobra.Command{Use: c.Name(), SuggestFor: c.SuggestFor, RunE: cmd.RunE})
	}
	mean := ""
	if like := known.SuggestionsFor(args[0]); len(like) > 0 {
		mean = " (did you mean " + strings.Join(like, ", ") + "?)"
	}
	return usageErrorf("there is no command %s%s", text.Visible(args[0]), mean)
}
