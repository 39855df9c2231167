package unlocker

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/clustermutex/unlocker/internal/etcdconn"
	"github.com/clustermutex/unlocker/internal/witness/pod"
)

// kubernetesOptions holds the flags about the witness in Kubernetes.
type kubernetesOptions struct {
	pods       bool
	namespaces []string
	kubeconfig string
}

func (o *kubernetesOptions) define(fs *pflag.FlagSet) {
	fs.BoolVar(&o.pods, "kubernetes.pods", false,
		"watch pods, and state that a lock's holder is dead when the kubelet reports the end of its container")
	fs.StringSliceVar(&o.namespaces, "kubernetes.namespaces", nil,
		"`namespace` whose pods are watched; comma-separated or repeated; without it, those of all namespaces")
	fs.StringVar(&o.kubeconfig, "kubernetes.kubeconfig", "",
		"kubeconfig `file` for the API server; without it, the service account of the unlocker's own pod")
}

func (o kubernetesOptions) check() error {
	switch {
	case !o.pods && (len(o.namespaces) > 0 || o.kubeconfig != ""):
		return errors.New("--kubernetes.namespaces and --kubernetes.kubeconfig are for --kubernetes.pods, which is " +
			"missing")
	case slices.Contains(o.namespaces, ""):
		return errors.New("--kubernetes.namespaces contains an empty name: leave the flag out to watch all namespaces")
	case o.kubeconfig != "":
		if _, err := os.Stat(o.kubeconfig); err != nil {
			return fmt.Errorf("--kubernetes.kubeconfig: %w", err)
		}
	}
	return nil
}

// witnessPods connects the witness in Kubernetes to the view and the store; it is nil if not configured.
func (r *components) witnessPods(o options, log zerolog.Logger) (*pod.Witness, error) {
	if !o.kubernetes.pods {
		return nil, nil
	}
	api, err := pod.Connect(o.kubernetes.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubernetes.pods: %w", err)
	}
	return pod.New(pod.Config{
		By: r.config.ID, Namespaces: o.kubernetes.namespaces,
		Locks: r.view.All, Lock: r.view.Lock, Changed: r.view.Changed, Clock: r.view.Clock,
		State: r.store.State, Suspect: r.store.Suspect, Dispel: r.store.Dispel,
		Explain: etcdconn.Explain, Log: log,
	}, api), nil
}
