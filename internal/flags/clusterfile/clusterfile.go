// Package clusterfile reads the file that lists etcd clusters and how to reach each. The dashboard and mutexctl read
// the same file. It contains no secrets: passwords and keys are in files that it names.
//
//	clusters:
//	  - name: prod-eu
//	    label: Production, Europe
//	    endpoints: [https://etcd-0.eu.example:2379, https://etcd-1.eu.example:2379]
//	    user: mutexdash
//	    password-file: prod-eu.password
//	    cacert: prod-eu.pem
package clusterfile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/protocol"
)

// Describes reports whether a program's flag says where the locks are, as the file does.
func Describes(flag string) bool {
	switch flag {
	case "etcd.dial-timeout", "etcd.request-timeout", "etcd.keepalive-time", "etcd.keepalive-timeout":
		return false
	}
	return strings.HasPrefix(flag, "etcd.") || flag == "locks.prefix"
}

// Cluster is an etcd cluster, as the file describes it.
type Cluster struct {
	Name   string `yaml:"name"`
	Label  string `yaml:"label"`  // for people; empty: the name
	Colour string `yaml:"colour"` // of the dashboard
	Prefix string `yaml:"prefix"` // of the locks' keys
	Links  links  `yaml:"links"`  // on the page of a lock

	Endpoints    []string `yaml:"endpoints"`
	User         string   `yaml:"user"`
	PasswordFile string   `yaml:"password-file"`
	CACert       string   `yaml:"cacert"` // files
	Cert         string   `yaml:"cert"`
	Key          string   `yaml:"key"`
	ServerName   string   `yaml:"server-name"`
}

// links are NAME=URL, sorted. In the file they are a map.
type links []string

// UnmarshalYAML implements [yaml.Unmarshaler].
func (l *links) UnmarshalYAML(node *yaml.Node) error {
	var urls map[string]string
	if err := node.Decode(&urls); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(urls)) {
		*l = append(*l, name+"="+urls[name])
	}
	return nil
}

// Read reads the file. The error is one sentence; it names the file and, where it is about one, the cluster.
func Read(file string) ([]Cluster, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("the file of clusters cannot be read: %w", err)
	}
	list, err := parse(text, filepath.Dir(file))
	if err != nil {
		return nil, fmt.Errorf("the file of clusters %s: %w", file, err)
	}
	return list, nil
}

// parse reads the text of a cluster file. dir is its directory, to which paths in it are relative.
func parse(text []byte, dir string) ([]Cluster, error) {
	var file struct {
		Clusters []Cluster `yaml:"clusters"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, sentence(err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more than one document")
	}
	if len(file.Clusters) == 0 {
		return nil, errors.New("it names no cluster: it must begin with \"clusters:\" and a list")
	}
	list := file.Clusters
	for i := range list {
		c := &list[i]
		switch {
		case c.Name == "":
			return nil, fmt.Errorf("the cluster at place %d has no name", i+1)
		case !isName(c.Name):
			return nil, fmt.Errorf("%q is no name of a cluster: it may have up to 63 letters, digits, dots, - and _",
				c.Name)
		case slices.ContainsFunc(list[:i], func(o Cluster) bool { return o.Name == c.Name }):
			return nil, fmt.Errorf("there are two clusters with the name %q", c.Name)
		}
		if err := c.complete(dir); err != nil {
			return nil, fmt.Errorf("cluster %q: %w", c.Name, err)
		}
	}
	return list, nil
}

// sentence returns an error of the decoder without the names of our types.
func sentence(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) || len(wrong.Errors) == 0 {
		return err
	}
	text, _, unknown := strings.Cut(wrong.Errors[0], " not found in type")
	if line, key, ok := strings.Cut(text, ": field "); ok && unknown {
		return fmt.Errorf("%s: there is no key %q", line, key)
	}
	text, _, _ = strings.Cut(text, " into ")
	return errors.New(strings.Replace(text, "cannot unmarshal ", "", 1) + " is of the wrong kind")
}

// isName reports whether a cluster can have this name, which appears in addresses, queries and metrics.
func isName(name string) bool {
	const first, rest = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "._-"
	return name != "" && len(name) < 64 && strings.IndexByte(first, name[0]) >= 0 &&
		strings.Trim(name, first+rest) == ""
}

// complete fills in what the file may leave out, and makes paths absolute.
func (c *Cluster) complete(dir string) error {
	for _, file := range []*string{&c.PasswordFile, &c.CACert, &c.Cert, &c.Key} {
		if *file != "" && !filepath.IsAbs(*file) {
			*file = filepath.Join(dir, *file)
		}
	}
	if len(c.Endpoints) == 0 {
		return errors.New("it has no endpoints")
	}
	layout, err := protocol.NewLayout(cmp.Or(c.Prefix, protocol.DefaultPrefix))
	c.Prefix = layout.Prefix()
	return err
}

// Settings returns the settings of a connection to the cluster. Settings that the file does not have, such as timeouts,
// are those of base.
func (c Cluster) Settings(base etcdconn.Settings) etcdconn.Settings {
	s := base
	s.Endpoints = c.Endpoints
	s.User = c.User
	s.PasswordFile = c.PasswordFile
	s.Password = ""
	s.CACert = c.CACert
	s.Cert = c.Cert
	s.Key = c.Key
	s.ServerName = c.ServerName
	s.InsecureSkipVerify = false
	return s
}

// Check returns one sentence about what cannot work: contradictions, and files that cannot be used.
func (c Cluster) Check(base etcdconn.Settings) error {
	if err := c.Settings(base).Check(); err != nil {
		return fmt.Errorf("cluster %q: %w", c.Name, err)
	}
	return nil
}
