package wiring

import (
	"bytes"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// old is a member of an old version.
type old struct {
	pb.UnimplementedMaintenanceServer
}

func (old) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{}, Version: "3.5.21"}, nil
}

func TestAnOldEtcdIsLoggedOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	proctest.Must(t, err)
	server := grpc.NewServer()
	pb.RegisterMaintenanceServer(server, old{})
	go server.Serve(l)
	defer server.Stop()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{l.Addr().String()}, Logger: zap.NewNop()})
	proctest.Must(t, err)
	defer client.Close()
	var log bytes.Buffer
	h := NewHealth(client, time.Minute, zerolog.New(&log))
	h.check(t.Context())
	h.check(t.Context())
	if said := log.String(); strings.Count(said, "etcd 3.5.21 may answer reads with outdated data") != 1 {
		t.Errorf("it says %q", said)
	}
}
