// Package clusterfile reads the file that names etcd clusters and says how to reach each. The dashboard and mutexctl
// read the same one. It holds no secrets: passwords and keys are in files that it names.
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
	Name   string
	Label  string   // for people; empty: the name
	Colour string   // of the dashboard
	Prefix string   // of the locks' keys
	Links  []string // NAME=URL, on the page of a lock, sorted

	Endpoints          []string
	User, PasswordFile string
	CACert, Cert, Key  string // files
	ServerName         string
}

// entry is a cluster in the file.
type entry struct {
	Name         string            `yaml:"name"`
	Label        string            `yaml:"label"`
	Colour       string            `yaml:"colour"`
	Endpoints    []string          `yaml:"endpoints"`
	User         string            `yaml:"user"`
	PasswordFile string            `yaml:"password-file"`
	CACert       string            `yaml:"cacert"`
	Cert         string            `yaml:"cert"`
	Key          string            `yaml:"key"`
	ServerName   string            `yaml:"server-name"`
	Prefix       string            `yaml:"prefix"`
	Links        map[string]string `yaml:"links"`
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

// parse reads the text of a file in a directory, below which it names others.
func parse(text []byte, dir string) ([]Cluster, error) {
	var file struct {
		Clusters []entry `yaml:"clusters"`
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
	list := make([]Cluster, len(file.Clusters))
	for i, e := range file.Clusters {
		switch {
		case e.Name == "":
			return nil, fmt.Errorf("the cluster at place %d has no name", i+1)
		case !IsName(e.Name):
			return nil, fmt.Errorf("%q is no name of a cluster: it may have up to 63 letters, digits, dots, - and _",
				e.Name)
		case slices.ContainsFunc(list[:i], func(c Cluster) bool { return c.Name == e.Name }):
			return nil, fmt.Errorf("there are two clusters with the name %q", e.Name)
		}
		var err error
		if list[i], err = e.cluster(dir); err != nil {
			return nil, fmt.Errorf("cluster %q: %w", e.Name, err)
		}
	}
	return list, nil
}

// sentence is an error of the decoder without the names of our types.
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

// IsName reports whether a cluster can have this name: it stands in addresses, queries and metrics.
func IsName(name string) bool {
	const first, rest = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "._-"
	return name != "" && len(name) < 64 && strings.IndexByte(first, name[0]) >= 0 &&
		strings.Trim(name, first+rest) == ""
}

func (e entry) cluster(dir string) (Cluster, error) {
	below := func(file string) string {
		if file == "" || filepath.IsAbs(file) {
			return file
		}
		return filepath.Join(dir, file)
	}
	c := Cluster{Name: e.Name, Label: e.Label, Colour: e.Colour, Prefix: e.Prefix, Endpoints: e.Endpoints, User: e.User,
		PasswordFile: below(e.PasswordFile), CACert: below(e.CACert), Cert: below(e.Cert), Key: below(e.Key),
		ServerName: e.ServerName}
	if len(c.Endpoints) == 0 {
		return c, errors.New("it has no endpoints")
	}
	if c.Prefix == "" {
		c.Prefix = protocol.DefaultPrefix
	}
	layout, err := protocol.NewLayout(c.Prefix)
	if err != nil {
		return c, err
	}
	c.Prefix = layout.Prefix()
	for _, name := range slices.Sorted(maps.Keys(e.Links)) {
		c.Links = append(c.Links, name+"="+e.Links[name])
	}
	return c, nil
}

// Settings are those of a connection to the cluster. What the file cannot say, such as timeouts, is as in base.
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
