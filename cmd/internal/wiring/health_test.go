package wiring

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// old is a member of an old version.
type old struct{ clientv3.Maintenance }

func (old) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Header: &pb.ResponseHeader{}, Version: "3.5.21"}, nil
}

func (old) AlarmList(context.Context) (*clientv3.AlarmResponse, error) {
	return &clientv3.AlarmResponse{}, nil
}

func TestAnOldEtcdIsLoggedOnce(t *testing.T) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"old"}, Logger: zap.NewNop()})
	proctest.Must(t, err)
	defer client.Close()
	client.Maintenance = old{}
	var log bytes.Buffer
	h := NewHealth(client, time.Minute, zerolog.New(&log))
	h.ask(t.Context())
	h.ask(t.Context())
	if said := log.String(); strings.Count(said, "etcd 3.5.21 may answer reads with outdated data") != 1 {
		t.Errorf("it says %q", said)
	}
}
