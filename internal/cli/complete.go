package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// completeNames offers the shell the names of the locks that are held. Names that could drive the terminal are left out.
func (a *app) completeNames(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if err := flags.FromEnvironment(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	s, err := a.open(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer s.close()
	all, err := s.snapshot(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var offers []string
	for _, r := range all.locks {
		if metadata.CheckName(r.Name) == nil && visible(r.Name) == r.Name && strings.HasPrefix(r.Name, begun) {
			offers = append(offers, r.Name)
		}
	}
	return offers, cobra.ShellCompDirectiveNoFileComp
}
