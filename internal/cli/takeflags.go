package cli

import (
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/pkg/mutex"
)

// takeFlags are what all commands that take a lock ask about it.
type takeFlags struct {
	names          names
	owner, purpose string
	attributes     []string
	wait           patience
}

func (t *takeFlags) add(cmd *cobra.Command, wait patience) {
	t.wait = wait
	t.names.flag(cmd)
	f := cmd.Flags()
	f.StringVar(&t.purpose, "purpose", "", "`text` that says what the lock is held for; whoever is alerted reads this first")
	f.StringArrayVar(&t.attributes, "attr", nil, "an attribute for people to see, as `name=value`; repeat for more")
	f.Var(&t.wait, "wait", "how long to wait for the lock: a time, 0 to try once, or forever")
}

// options are the lock's as the library wants them, but for the times. The values of attributes stay text: a build number like
// 0017 must not lose its zeros.
func (t *takeFlags) options() ([]mutex.Option, error) {
	options := []mutex.Option{
		mutex.Owner(t.owner), mutex.Purpose(t.purpose),
		mutex.BacktraceDepth(0), // it would lead into mutexctl
		mutex.Attribute("user", userName()),
	}
	for _, pair := range t.attributes {
		name, text, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usagef("--attr %s: want name=value", visible(pair))
		}
		options = append(options, mutex.Attribute(name, text))
	}
	return options, nil
}

// times checks durations of the command line before etcd is asked.
func times(values map[string]time.Duration) error {
	for _, name := range sorted(values) {
		if values[name] <= 0 {
			return usagef("--%s is %v, it must be positive", name, values[name])
		}
	}
	return nil
}

func userName() string {
	u, err := user.Current()
	if err != nil {
		return "unknown"
	}
	return u.Username
}
