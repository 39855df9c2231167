package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/flags/clusterfile"
	"github.com/clustermutex/unlocker/internal/text"
)

type clustersOptions struct {
	app    *app
	format *term.Format
	none   bool
}

func newClusters(a *app) *cobra.Command {
	o := &clustersOptions{app: a}
	cmd := &cobra.Command{
		Use:   "clusters [NAME]",
		Short: "List the clusters that can be named, or choose one for all commands",
		Long: `Without NAME, list the clusters in the file of --clusters; an asterisk marks the one that commands are
about. With NAME, choose it for all commands from now on; --none takes the choice back. It is kept in
the file mutexctl/cluster of the configuration directory, such as ~/.config.

A command is about the cluster of --cluster or MUTEXCTL_CLUSTER. Without either, flags and variables
that say where etcd is count, such as --etcd.endpoints or ETCDCTL_ENDPOINTS; without those, the chosen
cluster. For a named or chosen cluster, connection flags on the command line win over the file, and
variables do not count. The file is that of mutexdash; passwords and keys are in files that it names:

clusters:
  - name: prod-eu
    label: Production, Europe
    endpoints: [https://etcd-0.eu.example:2379, https://etcd-1.eu.example:2379]
    user: operator
    password-file: prod-eu.password
    cacert: prod-eu.pem
  - name: staging
    endpoints: [etcd.staging.example:2379]`,
		Example: `  mutexctl clusters
  mutexctl clusters prod-eu
  mutexctl list --cluster staging`,
		Args:              wants(0, 1, "one name of a cluster"),
		ValidArgsFunction: a.completeClusters,
	}
	cmd.Flags().BoolVar(&o.none, "none", false, "choose no cluster")
	flags.CommandLineOnly(cmd.Flags(), "none")
	o.format = term.Output(cmd, term.TableFormat, term.JSONFormat, term.NameFormat)
	cmd.RunE = func(_ *cobra.Command, args []string) error { return o.run(args) }
	return cmd
}

func (o *clustersOptions) run(args []string) error {
	switch {
	case o.none && len(args) > 0:
		return usagef("give a NAME or --none, not both")
	case o.none:
		return choose("")
	}
	list, file, err := o.app.clusters.read()
	if err != nil {
		return &statusError{ExitUsage, err}
	}
	if len(args) > 0 {
		if _, err := clusterNamed(list, args[0], file); err != nil {
			return &statusError{ExitUsage, err}
		}
		return choose(args[0])
	}
	current, err := o.app.clusters.wanted()
	if err != nil {
		return err
	}
	return o.print(list, current)
}

// clusterJSON is a cluster for programs.
type clusterJSON struct {
	Name      string   `json:"name"`
	Label     string   `json:"label"`
	Current   bool     `json:"current"`
	Endpoints []string `json:"endpoints"`
	User      string   `json:"user"`
	Prefix    string   `json:"prefix"`
}

func (o *clustersOptions) print(list []clusterfile.Cluster, current string) error {
	t := term.Table{}
	t.Row("", "CLUSTER", "LABEL", "ENDPOINTS", "USER", "PREFIX")
	var err error
	for _, c := range list {
		switch o.format.String() {
		case term.JSONFormat:
			err = writeJSON(o.app.Stdout, clusterJSON{c.Name, c.Label, c.Name == current, c.Endpoints, c.User,
				c.Prefix})
		case term.NameFormat:
			_, err = fmt.Fprintln(o.app.Stdout, c.Name)
		default:
			mark := ""
			if c.Name == current {
				mark = "*"
			}
			t.Row(mark, c.Name, orNone(shortText(c.Label)), shortText(strings.Join(c.Endpoints, ",")),
				orNone(shortText(c.User)), text.Visible(c.Prefix))
		}
		if err != nil {
			return err
		}
	}
	if o.format.String() != term.TableFormat {
		return nil
	}
	return t.Write(o.app.Stdout)
}

// choose makes the cluster that of all commands; empty: none.
func choose(name string) error {
	file, err := ownFile("cluster")
	if err != nil {
		return err
	}
	if name == "" {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(name+"\n"), 0o600)
}
