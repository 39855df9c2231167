package cli_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/clustermutex/unlocker/internal/cli"
	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// old is an etcd that reports an old version; another etcd stores its keys.
type old struct {
	pb.UnimplementedKVServer
	pb.UnimplementedMaintenanceServer
	kv          pb.KVClient
	maintenance pb.MaintenanceClient
}

func (o old) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return o.kv.Range(ctx, r)
}

func (o old) Status(ctx context.Context, r *pb.StatusRequest) (*pb.StatusResponse, error) {
	s, err := o.maintenance.Status(ctx, r)
	s.Version = "3.5.21"
	return s, err
}

func TestCheckReportsAnOutdatedEtcd(t *testing.T) {
	conn := etcdtest.Start(t).Client(t).ActiveConnection()
	o := old{kv: pb.NewKVClient(conn), maintenance: pb.NewMaintenanceClient(conn)}
	server := grpc.NewServer()
	pb.RegisterKVServer(server, o)
	pb.RegisterMaintenanceServer(server, o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	proctest.Must(t, err)
	go server.Serve(l)
	defer server.Stop()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	proctest.Must(t, err)
	code := cli.Main(t.Context(), cli.Process{
		Args:   []string{"check", "--no-unlocker", "--etcd.endpoints", l.Addr().String()},
		Stdout: out, Stderr: out, Now: time.Now,
		Log: func(string, string) zerolog.Logger { return zerolog.Nop() },
	})
	said, err := os.ReadFile(out.Name())
	const want = "LOCKS WARNING: etcd 3.5.21 may answer reads with outdated data: use at least 3.5.28, 3.6.9 or 3.7. " +
		"0 locks on time. |"
	if code != 1 || err != nil || !strings.HasPrefix(string(said), want) {
		t.Errorf("status %d: %s (%v)", code, said, err)
	}
}
