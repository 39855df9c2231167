package etcdtest

import (
	"encoding/json"
	"os/exec"

	"github.com/clustermutex/unlocker/internal/testkit/etcdembed"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// launch runs a member as a process: this test binary again, or another etcd.
func launch(c etcdembed.Config, program string) (*proctest.Process, error) {
	if program != "" {
		return proctest.Launch(exec.Command(program, flags(c)...))
	}
	config, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return proctest.Launch(proctest.Self(memberVariable, string(config)))
}

// flags returns the command line of an etcd for a Config, except for TLS, users and limits.
func flags(c etcdembed.Config) []string {
	client := "http://" + c.Client
	peer := "http://" + c.Peer
	return []string{
		"--name=" + c.Name, "--data-dir=" + c.Dir, "--initial-cluster=" + c.Cluster, "--unsafe-no-fsync",
		"--log-level=error",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
	}
}
