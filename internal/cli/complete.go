package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/text"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// completeNames completes the names of held locks and shares. Names that could control the terminal are left out.
func (a *app) completeNames(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, begun, func(r *metadata.Record) []string { return []string{r.Name} })
}

// completeLocks also completes the names of locks that are held in shares.
func (a *app) completeLocks(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, begun, func(r *metadata.Record) []string { return []string{r.Name, r.Queue()} })
}

func (a *app) complete(cmd *cobra.Command, args []string, begun string,
	of func(*metadata.Record) []string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if err := flags.FromEnvironment(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	all, err := a.readAll(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var offers []string
	for _, r := range all.locks {
		for _, name := range of(r) {
			if metadata.CheckName(name) == nil && text.Visible(name) == name && strings.HasPrefix(name, begun) {
				offers = append(offers, name)
			}
		}
	}
	slices.Sort(offers)
	return slices.Compact(offers), cobra.ShellCompDirectiveNoFileComp
}
