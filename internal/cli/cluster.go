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

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags"
	"github.com/clustermutex/unlocker/internal/flags/clusterfile"
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

// read reads the file of clusters.
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

// isConnection reports whether a flag says where the locks are, as a file of clusters does.
func isConnection(f *pflag.Flag) bool {
	switch f.Name {
	case "etcd.dial-timeout", "etcd.request-timeout", "etcd.keepalive-time", "etcd.keepalive-timeout":
		return false
	}
	return strings.HasPrefix(f.Name, "etcd.") || f.Name == "locks.prefix"
}

// wanted is the name of the cluster that the command is about; empty: the one that flags and variables describe.
// Somebody who says where etcd is does not mean the cluster that was chosen for all commands.
func (c *clusterFlags) wanted() (string, error) {
	described := false
	c.flags.VisitAll(func(f *pflag.Flag) { described = described || f.Changed && isConnection(f) })
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

// completeClusters completes the names of clusters.
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
