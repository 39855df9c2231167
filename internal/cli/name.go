package cli

import (
	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// names reads lock names from the command line.
type names struct{ escaped bool }

func (n *names) flag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&n.escaped, "escaped", false,
		`read the name in the form that mutexctl prints (\x1b, \u202e, \\)`)
}

// any reads the name of a lock that may exist: a client may have written a name that the protocol does not allow.
func (n *names) any(arg string) (string, error) {
	if arg == "" {
		return "", usagef("the lock name is empty")
	}
	if !n.escaped {
		return arg, nil
	}
	name, err := text.Parse(arg)
	if err != nil {
		return "", usagef("the lock name %w", err)
	}
	return name, nil
}

// good reads the name of a lock to be taken.
func (n *names) good(arg string) (string, error) {
	name, err := n.any(arg)
	if err != nil {
		return "", err
	}
	if err := metadata.CheckName(name); err != nil {
		return "", &statusError{ExitUsage, err}
	}
	return name, nil
}
