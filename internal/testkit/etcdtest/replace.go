package etcdtest

import (
	"context"
	"errors"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Replace removes member i from the cluster for good and adds a new one with number i, with other addresses and no
// data. It may take some seconds, because etcd refuses a change of members soon after another.
func (m *Members) Replace(t testing.TB, i int) {
	t.Helper()
	old := m.confs[i]
	next := m.config(t)
	c := m.ClientOf(t, (i+1)%len(m.confs))
	defer c.Close()
	eventually(t, "the removal of member "+old.Name, func(ctx context.Context) error {
		members, err := c.MemberList(ctx)
		if err != nil {
			return err
		}
		for _, member := range members.Members {
			if member.Name == old.Name {
				_, err = c.MemberRemove(ctx, member.ID)
			}
		}
		return err
	})
	m.Kill(i)
	eventually(t, "the addition of member "+next.Name, func(ctx context.Context) error {
		if _, err := c.MemberAdd(ctx, []string{"http://" + next.Peer}); err != nil &&
			!errors.Is(err, rpctypes.ErrPeerURLExist) {
			return err
		}
		members, err := c.MemberList(ctx)
		if err == nil {
			next.Cluster = initialCluster(members.Members, next.Name)
		}
		return err
	})
	next.Joins = true
	m.confs[i], m.programs[i] = next, ""
	m.launch(i)
	m.WaitReady(t)
}

// initialCluster returns the initial cluster of a joining member. A member that was just added has no name yet.
func initialCluster(members []*pb.Member, name string) string {
	var peers []string
	for _, member := range members {
		if member.Name != "" {
			peers = append(peers, member.Name+"="+member.PeerURLs[0])
		} else {
			peers = append(peers, name+"="+member.PeerURLs[0])
		}
	}
	return strings.Join(peers, ",")
}
