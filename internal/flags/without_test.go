package flags_test

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/clustermutex/unlocker/internal/flags"
)

func TestACommandWithoutEnvironmentLooksAtItsCommandLineOnly(t *testing.T) {
	t.Setenv("UNLOCKER_ETCD_USER", "eve")
	t.Setenv("ETCDCTL_ENDPOINTS", "elsewhere:2379")
	cmd := &cobra.Command{Use: "unlocker", RunE: func(*cobra.Command, []string) error { return nil }}
	etcd := flags.Etcd(cmd.Flags())
	flags.Bind(cmd, "UNLOCKER")
	if err := flags.Execute(t.Context(), flags.WithoutEnvironment(cmd),
		[]string{"--etcd.dial-timeout=3s"}); err != nil {
		t.Fatal(err)
	}
	if etcd.User != "" || etcd.Endpoints[0] != "127.0.0.1:2379" || etcd.DialTimeout.Seconds() != 3 {
		t.Errorf("the settings are %+v", *etcd)
	}
}
