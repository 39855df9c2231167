package lockstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Granted returns how long the lease lasts without being renewed; 0 if it is over, or hidden from us because there are
// keys on it that we may not read.
func (s *Store) Granted(ctx context.Context, lease int64) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := s.etcd.TimeToLive(ctx, clientv3.LeaseID(lease))
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("look at lease %x: %w", lease, err)
	case resp.TTL <= 0:
		return 0, nil
	}
	return time.Duration(resp.GrantedTTL) * time.Second, nil
}
