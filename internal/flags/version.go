package flags

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Version makes a program say in a line which build it is: with the flag --version, and with the command version,
// unless it has such a command already.
func Version(root *cobra.Command, line string) {
	root.Version = line
	root.SetVersionTemplate("{{.Version}}\n")
	for _, c := range root.Commands() {
		if c.Name() == "version" {
			return
		}
	}
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "The version of this program", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), line)
			return err
		},
	})
}
