package etcdconn

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// old is a member of an old version.
type old struct {
	pb.UnimplementedMaintenanceServer
}

func (old) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	return &pb.StatusResponse{Header: &pb.ResponseHeader{}, Version: "3.5.21"}, nil
}

func TestAnOldEtcdIsLoggedOnceAndItsCertificateKept(t *testing.T) {
	ca := proctest.NewCA(t)
	pair := ca.Pair(t, "etcd")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	proctest.Must(t, err)
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&pair)))
	pb.RegisterMaintenanceServer(server, old{})
	go server.Serve(l)
	defer server.Stop()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + l.Addr().String()},
		TLS: &tls.Config{RootCAs: ca.Pool()}, Logger: zap.NewNop()})
	proctest.Must(t, err)
	defer client.Close()
	var log bytes.Buffer
	h := NewHealthMonitor(client, time.Minute, zerolog.New(&log))
	if h.ServerCertificate() != nil {
		t.Error("a certificate is known before the first check")
	}
	h.check(t.Context())
	h.check(t.Context())
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	h.check(gone)
	if c := h.ServerCertificate(); c == nil || c.Subject.CommonName != "etcd" {
		t.Errorf("when etcd does not answer, its certificate is %v", c)
	}
	if said := log.String(); strings.Count(said, "etcd 3.5.21 may answer reads with outdated data") != 1 {
		t.Errorf("it says %q", said)
	}
}
