package clusterfile_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/flags/clusterfile"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clusters.yaml")
	proctest.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestFileNamesClusters(t *testing.T) {
	path := write(t, `
clusters:
  - name: prod-eu
    label: Production, Europe
    colour: magenta
    endpoints: ["https://etcd-0:2379", "https://etcd-1:2379"]
    user: mutexdash
    password-file: secrets/eu
    cacert: /etc/ca.pem
    prefix: /locks
    links: {runbook: "https://wiki.example/{name}", logs: "https://logs.example/?q={host}"}
  - name: staging
    endpoints: ["127.0.0.1:2379"]
`)
	list, err := clusterfile.Read(path)
	proctest.Must(t, err)
	want := []clusterfile.Cluster{
		{Name: "prod-eu", Label: "Production, Europe", Colour: "magenta", Prefix: "/locks/",
			Endpoints: []string{"https://etcd-0:2379", "https://etcd-1:2379"}, User: "mutexdash",
			PasswordFile: filepath.Join(filepath.Dir(path), "secrets/eu"), CACert: "/etc/ca.pem",
			Links: []string{"logs=https://logs.example/?q={host}", "runbook=https://wiki.example/{name}"}},
		{Name: "staging", Prefix: "/mutexes/", Endpoints: []string{"127.0.0.1:2379"}},
	}
	if !reflect.DeepEqual(list, want) {
		t.Errorf("the file is read as %+v", list)
	}
	base := etcdconn.Defaults()
	base.User, base.Password = "root", "secret"
	if s := list[1].Settings(base); s.User != "" || s.Password != "" || s.RequestTimeout != base.RequestTimeout {
		t.Errorf("the settings of staging are %+v", s)
	}
}

func TestBadFileIsRefusedInOneSentence(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    `it names no cluster: it must begin with "clusters:" and a list`,
		"clusters: []":                        `it names no cluster`,
		"- name: a":                           `line 1: !!seq is of the wrong kind`,
		"clusters: [{name: a, pasword: b}]":   `line 1: there is no key "pasword"`,
		"cluster: [{name: a}]":                `there is no key "cluster"`,
		"clusters: [{endpoints: [a]}]":        `the cluster at place 1 has no name`,
		"clusters: [{name: a}]":               `cluster "a": it has no endpoints`,
		"clusters: [{name: a/b}]":             `"a/b" is no name of a cluster`,
		"clusters: [{name: .., label: up}]":   `".." is no name of a cluster`,
		"clusters: [{name: a, endpoints: x}]": `wrong kind`,
		"clusters: [{name: a, endpoints: [x]}, {name: a, endpoints: [y]}]": `two clusters with the name "a"`,
		"clusters: [{name: a, endpoints: [x], prefix: /}]":                 `cluster "a": `,
		"clusters: [{name: a, endpoints: [x]}]\n---\nclusters: []":         `more than one document`,
		"clusters: [": `did not find`,
	} {
		_, err := clusterfile.Read(write(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") ||
			strings.Contains(err.Error(), "clusterfile.") {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if _, err := clusterfile.Read("/nowhere/clusters.yaml"); err == nil ||
		!strings.Contains(err.Error(), "/nowhere/clusters.yaml") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestUnreadableCredentialFilesAreRefused(t *testing.T) {
	list, err := clusterfile.Read(write(t,
		"clusters: [{name: eu, endpoints: ['x:1'], user: u, password-file: gone}, "+
			"{name: us, endpoints: ['x:1'], cacert: gone}]"))
	proctest.Must(t, err)
	for _, c := range list {
		err := c.Check(etcdconn.Defaults())
		if err == nil || !strings.Contains(err.Error(), `cluster "`+c.Name+`": `) ||
			!strings.Contains(err.Error(), "gone") {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
}
