package etcdconn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Error is why etcd can not be used, in one sentence.
type Error struct {
	Class    Class
	sentence string
	err      error
}

func (e *Error) Error() string { return e.sentence }

func (e *Error) Unwrap() error { return e.err }

// Prove makes one linearizable read of the prefix. It fails with an *Error: at once where no endpoint takes a
// connection or etcd says no, at the end of ctx where nothing answers.
//
// It asks for a revision that is yet to come: so etcd looks who asks, for which range, and that it has a leader, and
// then says no. To answer with a single key it would count all others below the prefix, half a second of a processor
// for a million locks.
func Prove(ctx context.Context, c *clientv3.Client, prefix string) error {
	// Not through c: its calls wait for a connection until ctx ends, and then hide why there is none.
	_, err := pb.NewKVClient(c.ActiveConnection()).Range(clientv3.WithRequireLeader(ctx), &pb.RangeRequest{
		Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)), Revision: math.MaxInt64,
	})
	if err == nil || errors.Is(rpctypes.Error(err), rpctypes.ErrFutureRev) {
		return nil
	}
	class, sentence := explain(err)
	switch class {
	case Permission:
		sentence = fmt.Sprintf("etcd does not let our user read the keys below %s: its role needs read permission for exactly that prefix", prefix)
	case Unreachable, Certificate, Timeout:
		sentence += " (" + strings.Join(c.Endpoints(), ", ") + ")"
	}
	return &Error{class, sentence, err}
}
