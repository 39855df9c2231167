package unlocker

import (
	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/deploy"
)

// rulesCommand prints the alerts that belong to this build, so that nobody has to look for the file.
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
