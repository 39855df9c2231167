package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/cli/term"
	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/flags/clusterfile"
	"github.com/clustermutex/unlocker/internal/text"
)

// clusterFlags say which of several clusters a command is about. A cluster is named, or chosen once for all commands;
// without either, the flags and variables of the connection count alone.
type clusterFlags struct {
	name, file string
	flags      *pflag.FlagSet // of all commands
}

func (c *clusterFlags) define(fs *pflag.FlagSet) {
	c.flags = fs
	fs.StringVar(&c.name, "cluster", "",
		"`name` of the cluster in the file of --clusters; default: the one that \"mutexctl clusters NAME\" chose")
	fs.StringVar(&c.file, "clusters", "",
		"YAML `file` that names clusters, as for mutexdash; default: mutexctl/clusters.yaml in the configuration "+
			"directory, such as ~/.config")
}

func (c *clusterFlags) read() (list []clusterfile.Cluster, file string, err error) {
	if file = c.file; file == "" {
		if file, err = ownFile("clusters.yaml"); err != nil {
			return nil, "", err
		}
	}
	list, err = clusterfile.Read(file)
	return list, file, err
}

// ownFile is a file in our configuration directory.
func ownFile(name string) (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no configuration directory: %w", err)
	}
	return filepath.Join(dir, "mutexctl", name), nil
}

// chosen is the name of the cluster that was chosen for all commands; empty: none.
func chosen() (string, error) {
	file, err := ownFile("cluster")
	if err != nil {
		return "", nil //nolint:nilerr // without such a directory nothing was chosen
	}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// wanted is the name of the cluster that the command is about; empty: the one that flags and variables describe.
// Somebody who says where etcd is does not mean the cluster that was chosen for all commands.
func (c *clusterFlags) wanted() (string, error) {
	described := false
	c.flags.VisitAll(func(f *pflag.Flag) { described = described || f.Changed && clusterfile.Describes(f.Name) })
	if c.name != "" || described {
		return c.name, nil
	}
	return chosen()
}

// useCluster puts the settings of the cluster in place of those of flags and variables. What the command line says
// wins.
func (a *app) useCluster() error {
	name, err := a.clusters.wanted()
	if err != nil || name == "" {
		return err
	}
	list, file, err := a.clusters.read()
	if err != nil {
		return err
	}
	found, err := clusterNamed(list, name, file)
	if err != nil {
		return err
	}
	given := *a.etcd
	*a.etcd = found.Settings(given)
	prefix := a.locks.Prefix
	a.locks.Prefix = found.Prefix
	a.clusters.flags.VisitAll(func(f *pflag.Flag) {
		if flags.OnCommandLine(f) {
			keep(f.Name, a.etcd, &given)
			if f.Name == "locks.prefix" {
				a.locks.Prefix = prefix
			}
		}
	})
	return nil
}

// keep takes over what the flag of this name says.
func keep(flag string, s, given *etcdconn.Settings) {
	switch flag {
	case "etcd.endpoints":
		s.Endpoints = given.Endpoints
	case "etcd.cacert":
		s.CACert = given.CACert
	case "etcd.cert":
		s.Cert = given.Cert
	case "etcd.key":
		s.Key = given.Key
	case "etcd.server-name":
		s.ServerName = given.ServerName
	case "etcd.insecure-skip-tls-verify":
		s.InsecureSkipVerify = given.InsecureSkipVerify
	case "etcd.password-file":
		s.PasswordFile = given.PasswordFile
	case "etcd.user": // whose password is not that of the user in the file
		s.User = given.User
		s.PasswordFile = given.PasswordFile
		s.Password = given.Password
	}
}

func clusterNamed(list []clusterfile.Cluster, name, file string) (clusterfile.Cluster, error) {
	i := slices.IndexFunc(list, func(c clusterfile.Cluster) bool { return c.Name == name })
	if i < 0 {
		names := make([]string, len(list))
		for i, c := range list {
			names[i] = c.Name
		}
		return clusterfile.Cluster{}, fmt.Errorf("there is no cluster %q in %s: it names %s", name, file,
			strings.Join(names, ", "))
	}
	return list[i], nil
}

func (a *app) completeClusters(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if err := flags.FromEnvironment(cmd); err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	list, _, err := a.clusters.read()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, c := range list {
		if strings.HasPrefix(c.Name, begun) {
			names = append(names, c.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

type clustersOptions struct {
	app    *app
	format *term.Format
	none   bool
}

func newClusters(a *app) *cobra.Command {
	o := &clustersOptions{app: a}
	cmd := &cobra.Command{
		Use:   "clusters [NAME]",
		Short: "List the clusters, or choose the one that commands use",
		Long: `Without NAME, list the clusters in the file of --clusters; an asterisk marks the one that commands
use. With NAME, choose it for all commands from now on; --none undoes the choice, which is kept in the
file mutexctl/cluster of the configuration directory, such as ~/.config.

A command uses the cluster of --cluster or MUTEXCTL_CLUSTER; without either, the etcd that flags or
variables name, such as --etcd.endpoints or ETCDCTL_ENDPOINTS; without those, the chosen cluster. For
a named or chosen cluster, connection flags on the command line override the file, and variables are
ignored. mutexdash reads the same file. Passwords and keys are in files that it names:

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
	cmd.Flags().BoolVar(&o.none, "none", false, "undo the choice")
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

type clusterJSON struct {
	Name      string   `json:"name"`
	Label     string   `json:"label"`
	Current   bool     `json:"current"`
	Endpoints []string `json:"endpoints"`
	User      string   `json:"user"`
	Prefix    string   `json:"prefix"`
}

func (o *clustersOptions) print(list []clusterfile.Cluster, current string) error {
	switch o.format.String() {
	case term.JSONFormat:
		return writeLines(o.app.Stdout, list, func(c clusterfile.Cluster) clusterJSON {
			return clusterJSON{c.Name, c.Label, c.Name == current, c.Endpoints, c.User, c.Prefix}
		})
	case term.NameFormat:
		return writeNames(o.app.Stdout, list, func(c clusterfile.Cluster) string { return c.Name })
	}
	t := term.Table{}
	t.Row("", "CLUSTER", "LABEL", "ENDPOINTS", "USER", "PREFIX")
	for _, c := range list {
		mark := ""
		if c.Name == current {
			mark = "*"
		}
		t.Row(mark, c.Name, shortText(c.Label), shortText(strings.Join(c.Endpoints, ",")), shortText(c.User),
			text.Visible(c.Prefix))
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
