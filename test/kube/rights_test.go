//go:build kube

package kube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// rights installs a witness in Kubernetes and a witness on each node, and asks the API server what their accounts may
// do. The first may see pods, where it was told to look; nobody else may do anything that any account may not.
func rights(t *testing.T, c *cluster) {
	const sees = "get,list,watch pods"
	for _, row := range []struct {
		namespace, values string
		looks, blind      []string // namespaces
	}{
		{"everywhere", "kubernetes.pods=true", []string{"everywhere", "shop", "kube-system"}, nil},
		{"somewhere", "kubernetes.pods=true,kubernetes.namespaces={shop,billing}", []string{"shop", "billing"},
			[]string{"somewhere", "kube-system"}},
		{"nowhere", "kubernetes.pods=true,kubernetes.rbac=false", nil, []string{"nowhere", "shop"}},
	} {
		h := newHelm(t, c, row.namespace)
		h.run(t, "install", "locks", chartPath, "--set",
			"policy=alert-only,etcd.endpoints={etcd:2379},witness.enabled=true,"+row.values)
		for _, namespace := range slices.Concat(row.looks, row.blind) {
			var want []string
			if slices.Contains(row.looks, namespace) {
				want = []string{sees}
			}
			if got := c.rights(t, row.namespace, "locks-unlocker-pods", namespace); !slices.Equal(got, want) {
				t.Errorf("%s: the unlocker may do %q in %s, want %q", row.namespace, got, namespace, want)
			}
			if got := c.rights(t, row.namespace, "locks-unlocker", namespace); len(got) != 0 {
				t.Errorf("%s: dashboard and witnesses of nodes may do %q in %s", row.namespace, got, namespace)
			}
		}
		h.uninstall(t)
	}
}

// rights are what a service account may do in a namespace, besides what every account may.
func (c *cluster) rights(t *testing.T, of, account, in string) (more []string) {
	t.Helper()
	everybody := c.rules(t, of, "default", in)
	for _, rule := range c.rules(t, of, account, in) {
		if !slices.Contains(everybody, rule) {
			more = append(more, rule)
		}
	}
	return more
}

// rules asks as the account.
func (c *cluster) rules(t *testing.T, of, account, in string) (all []string) {
	t.Helper()
	token := c.ask(t, "POST", "/api/v1/namespaces/"+of+"/serviceaccounts/"+account+"/token",
		object{"spec": object{}})["status"].(object)["token"].(string)
	answer, err := c.AskAs(token, "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
		object{"spec": object{"namespace": in}})
	proctest.Must(t, err)
	status := answer["status"].(object)
	if status["incomplete"] != false {
		t.Errorf("the API server does not say all: %v", status)
	}
	for _, rule := range status["resourceRules"].([]any) {
		r := rule.(object)
		words := []string{join(r["verbs"]), join(r["resources"]), join(r["resourceNames"])}
		if group := join(r["apiGroups"]); group != "" {
			words = append(words, "of", group)
		}
		all = append(all, strings.TrimSpace(strings.Join(words, " ")))
	}
	return all
}

func join(list any) string {
	items, _ := list.([]any)
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(items)), ","), "[]")
}
