package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/build"
	"github.com/clustermutex/unlocker/internal/cli/term"
)

func newVersion(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "The version of this program",
		Example: `  mutexctl version
  mutexctl version -o json | jq -r .version`,
		Args: wants(0, 0, ""),
	}
	format := term.Output(cmd, term.TableFormat, term.JSONFormat)
	cmd.RunE = func(*cobra.Command, []string) error {
		v := build.Current()
		if format.JSON() {
			return writeJSON(a.Stdout, v)
		}
		_, err := fmt.Fprintln(a.Stdout, v.Line("mutexctl"))
		return err
	}
	return cmd
}
