package flags

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// prefixAnnotation is the annotation of the root command in which Bind stores the environment prefix.
const prefixAnnotation = "environment prefix"

// lowestAnnotation is the annotation of flags of numbers in which Positive and NotNegative store what is refused.
const lowestAnnotation = "lowest"

// Positive makes these flags refuse what is not above 0.
func Positive(fs *pflag.FlagSet, names ...string) {
	for _, name := range names {
		fs.Lookup(name).Annotations = map[string][]string{lowestAnnotation: {"above 0"}}
	}
}

// NotNegative makes this flag of a count refuse negative ones, as all durations do by themselves.
func NotNegative(fs *pflag.FlagSet, name string) {
	fs.Lookup(name).Annotations = map[string][]string{lowestAnnotation: {"0"}}
}

// sharedOnlyAnnotation is the annotation of a root command whose own flags alone have variables.
const sharedOnlyAnnotation = "only shared flags have variables"

// startedAnnotation is the annotation of a root command of which Execute has run a command's RunE.
const startedAnnotation = "started"

// Bind gives every flag of cmd and the commands below it an environment variable, makes --help show defaults and
// variables, and turns a wrong flag into one sentence with a hint. Call it after all flags and commands are defined,
// and the root's PersistentPreRun, the only such hook, which then sees the environment applied.
func Bind(cmd *cobra.Command, environmentPrefix string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[prefixAnnotation] = environmentPrefix + "_"
	cmd.SilenceErrors = true
	cmd.SilenceUsage = true // the caller prints the sentence and nothing else
	cmd.SetUsageFunc(usage)
	complain := cmd.FlagErrorFunc()
	cmd.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return complain(c, &UsageError{Command: c.CommandPath(), Err: flagError(c, err)})
	})
	cmd.PersistentPreRunE = withEnvironment(cmd.PersistentPreRun)
	keepOrder(cmd)
}

// keepOrder lists the flags of a command, and of those below, in order of definition.
func keepOrder(c *cobra.Command) {
	c.Flags().SortFlags, c.PersistentFlags().SortFlags = false, false
	for _, below := range c.Commands() {
		keepOrder(below)
	}
}

// BindShared is Bind, but only the flags of all commands have variables: what is exported concerns every command, and a
// consent given once cannot become permanent.
func BindShared(cmd *cobra.Command, environmentPrefix string) {
	Bind(cmd, environmentPrefix)
	cmd.Annotations[sharedOnlyAnnotation] = "true"
}

// withEnvironment returns the hook that sets and checks flags before a command, and then calls the root's own.
func withEnvironment(hook func(*cobra.Command, []string)) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		if err := cmp.Or(FromEnvironment(c), checkRanges(c)); err != nil {
			return c.FlagErrorFunc()(c, err)
		}
		if hook != nil {
			hook(c, args)
		}
		c.Root().Annotations[startedAnnotation] = "true"
		return nil
	}
}

// FromEnvironment sets the flags of a command that are not on the command line. Commands that run need not call it;
// completion of their arguments must.
func FromEnvironment(c *cobra.Command) error {
	for _, f := range sortedFlags(c) {
		if f.Changed {
			continue
		}
		if err := setFromVariable(c, f); err != nil {
			return err
		}
	}
	return nil
}

// checkRanges returns an error if a duration or a count is negative, or 0 where that is wrong.
func checkRanges(c *cobra.Command) error {
	for _, f := range sortedFlags(c) {
		value := f.Value.String()
		switch rule := f.Annotations[lowestAnnotation]; {
		case strings.HasPrefix(value, "-") && (f.Value.Type() == "duration" || rule != nil):
			return fmt.Errorf("--%s is %s: it must not be negative", f.Name, value)
		case f.Changed && slices.Contains(rule, "above 0") && (value == "0" || value == "0s"):
			return fmt.Errorf("--%s is %s: it must be positive", f.Name, value)
		}
	}
	return nil
}

func setFromVariable(c *cobra.Command, f *pflag.Flag) error {
	for _, v := range variables(c, f) {
		value := os.Getenv(v.name)
		if value == "" {
			continue
		}
		if err := v.set(value); err != nil {
			return fmt.Errorf("the variable %s cannot be %q: %w", v.name, value, inWords(err))
		}
		f.Changed = true
		return nil
	}
	return nil
}

// sortedFlags returns the flags sorted by name: etcd.user must come after etcd.password-file, so as not to overwrite
// its password.
func sortedFlags(c *cobra.Command) []*pflag.Flag {
	var all []*pflag.Flag
	c.Flags().VisitAll(func(f *pflag.Flag) { all = append(all, f) })
	slices.SortFunc(all, func(a, b *pflag.Flag) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// variables returns the variables that can set a flag, in order of precedence.
func variables(c *cobra.Command, f *pflag.Flag) []source {
	root := c.Root()
	prefix := root.Annotations[prefixAnnotation]
	if prefix == "" || f.Name == "help" || f.Name == "version" {
		return nil
	}
	if root.Annotations[sharedOnlyAnnotation] != "" && root.PersistentFlags().Lookup(f.Name) == nil {
		return nil
	}
	all := []source{{name: prefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(f.Name)),
		set: f.Value.Set}}
	if v, ok := f.Value.(*multiSource); ok {
		for _, s := range v.sources {
			if s.own {
				s.name = prefix + s.name
			}
			all = append(all, s)
		}
	}
	return all
}

// WithoutEnvironment makes a bound command ignore the environment, because another program passes all of its flags.
func WithoutEnvironment(c *cobra.Command) *cobra.Command {
	delete(c.Annotations, prefixAnnotation)
	return c
}
