package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/internal/testkit/kubetest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// relist is how often a kubelet asks its runtime which containers have ended.
const relist = time.Second

// namespace is that of the pods.
const namespace = "bench"

// nodes makes pods in a real API server, and stands in for the kubelets: it looks once a second which processes have
// ended, and reports these as their kubelet would.
type nodes struct{ server *kubetest.Server }

// kubernetes starts an API server and an unlocker that watches its pods. It returns nil if there is no API server.
func (w *world) kubernetes(ctx context.Context, o options, etcd string) (*nodes, error) {
	if o.api == "" {
		return nil, nil
	}
	dir := filepath.Join(o.dir, "kubernetes")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	addr, err := proctest.FindAddr()
	if err != nil {
		return nil, err
	}
	server, err := kubetest.Launch(o.api, "http://"+etcd, addr, dir)
	if err != nil {
		return nil, err
	}
	w.api = server
	for err = server.Ready(); err != nil; err = server.Ready() {
		if !server.Process.Running() || contest.Wait(ctx, 100*time.Millisecond) != nil {
			return nil, fmt.Errorf("the API server: %w\n%s", err, server.Process.Output())
		}
	}
	if err := server.MakeNamespace(namespace); err != nil {
		return nil, err
	}
	config, err := server.Kubeconfig("unlocker", addr, kubetest.AdminToken)
	if err != nil {
		return nil, err
	}
	err = w.program(ctx, o, etcd, "/pods/", []string{"--policy=auto-unlock", "--sweep.abandoned=unlock",
		"--sweep.abandoned-grace=0s", "--kubernetes.pods", "--kubernetes.kubeconfig=" + config})
	return &nodes{server: server}, err
}

// startHolder starts a holder in a pod of its own.
func (n *nodes) startHolder(ctx context.Context, c client, lock string) (*proctest.Process, error) {
	const container = "worker"
	pod, err := n.server.MakePod(namespace, lock, "Always", time.Minute, container)
	if err != nil {
		return nil, err
	}
	p, err := startHolder(ctx, c, lock, "POD_NAMESPACE="+pod.Namespace, "POD_NAME="+pod.Name, "POD_UID="+pod.UID,
		"CONTAINER_NAME="+container)
	if err != nil {
		return nil, err
	}
	go n.report(p, pod, container)
	return p, nil
}

// report reports the end of a container at the first look after it.
func (n *nodes) report(p *proctest.Process, pod *kubetest.Pod, container string) {
	looks := time.NewTicker(relist)
	defer looks.Stop()
	for range looks.C {
		if p.Running() {
			continue
		}
		err := pod.Report(kubetest.Object{"containerStatuses": []kubetest.Object{pod.Ended(container, "1")}})
		if err != nil {
			fmt.Fprintln(os.Stderr, "the stand-in for the kubelet:", err)
		}
		return
	}
}
