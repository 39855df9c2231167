package unlocker

import (
	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/deploy"
)

// rulesCommand returns the command that prints the alert rules of this build.
func rulesCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rules", Short: "the alert rules for Prometheus", Args: cobra.NoArgs,
		Long: `Print the alert rules for Prometheus that belong to this version. docs/runbooks.md, which the
alerts link to, says what each alert means and what to do about it.`,
		Example: `  unlocker rules > /etc/prometheus/rules/unlocker.rules.yaml`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(deploy.Rules)
			return err
		},
	}
}
