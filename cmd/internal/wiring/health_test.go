package wiring

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/etcdtest"
)

// old is a member of an old version.
type old struct{ clientv3.Maintenance }

func (o old) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	s, err := o.Maintenance.Status(ctx, endpoint)
	if err == nil {
		s.Version = "3.5.21"
	}
	return s, err
}

func TestAnOldEtcdIsLoggedOnce(t *testing.T) {
	client := etcdtest.Start(t).Client(t)
	client.Maintenance = old{client.Maintenance}
	var log bytes.Buffer
	h := NewHealth(client, time.Minute, zerolog.New(&log))
	h.ask(t.Context())
	h.ask(t.Context())
	if said := log.String(); strings.Count(said, "etcd 3.5.21 may answer reads with outdated data") != 1 {
		t.Errorf("it says %q", said)
	}
}
