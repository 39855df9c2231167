package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/testkit/proctest"
)

// The user with all permissions if Auth is on.
const (
	RootUser     = "root"
	RootPassword = "root-password"
)

// Right is what a user may do.
type Right = clientv3.PermissionType

// The rights of a user on a prefix.
const (
	Read      = Right(clientv3.PermRead)
	ReadWrite = Right(clientv3.PermReadWrite)
)

// AddUser adds a user with one right on one prefix. Without a password, it can log in only with a client certificate of
// that name.
func (s *Server) AddUser(t testing.TB, name, password, prefix string, right Right) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	c := s.Client(t)
	_, userErr := c.UserAddWithOptions(ctx, name, password, &clientv3.UserAddOptions{NoPassword: password == ""})
	_, roleErr := c.RoleAdd(ctx, name)
	_, permErr := c.RoleGrantPermission(ctx, name, prefix, clientv3.GetPrefixRangeEnd(prefix), right)
	_, grantErr := c.UserGrantRole(ctx, name, name)
	if err := errors.Join(userErr, roleErr, permErr, grantErr); err != nil {
		t.Fatalf("add user %s: %v", name, err)
	}
}

func enableAuth(t testing.TB, c *clientv3.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	_, userErr := c.UserAdd(ctx, RootUser, RootPassword)
	_, roleErr := c.UserGrantRole(ctx, RootUser, "root")
	_, authErr := c.AuthEnable(ctx)
	if err := errors.Join(userErr, roleErr, authErr); err != nil {
		t.Fatalf("enable auth: %v", err)
	}
}

// Fill writes below prefix until etcd is out of space and raises the NOSPACE alarm; Drain makes it writable again. The
// server needs a Quota of a few MiB.
func (s *Server) Fill(t testing.TB, prefix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	c := s.Client(t)
	megabyte := strings.Repeat("x", 1<<20)
	for i := range 200 {
		_, err := c.Put(ctx, fmt.Sprintf("%s%d", prefix, i), megabyte)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		if err != nil {
			t.Fatalf("fill the store: %v", err)
		}
	}
	t.Fatal("fill the store: it takes 200 MiB; does it have a quota?")
}

// Drain deletes what Fill wrote and disarms the alarm.
func (s *Server) Drain(t testing.TB, prefix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), proctest.Timeout)
	defer cancel()
	c := s.Client(t)
	gone, err := c.Delete(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatalf("drain the store: %v", err)
	}
	_, compactErr := c.Compact(ctx, gone.Header.Revision, clientv3.WithCompactPhysical())
	_, defragErr := c.Defragment(ctx, s.Endpoint())
	_, alarmErr := c.AlarmDisarm(ctx, &clientv3.AlarmMember{})
	if err := errors.Join(compactErr, defragErr, alarmErr); err != nil {
		t.Fatalf("drain the store: %v", err)
	}
}
