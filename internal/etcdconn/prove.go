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

// Error is why etcd cannot be used, in one sentence.
type Error struct {
	Class    Class
	sentence string
	err      error
}

func (e *Error) Error() string { return e.sentence }

func (e *Error) Unwrap() error { return e.err }

// Prove makes one linearizable read of the prefix. It fails with an *Error: at once if no endpoint accepts a connection
// or etcd refuses, at the end of ctx if nothing answers.
//
// It asks for a future revision: etcd checks the user, the range and that it has a leader, and then refuses. To answer
// with even a single key it would count all others below the prefix, which takes half a second of CPU for a million
// locks.
func Prove(ctx context.Context, c *clientv3.Client, prefix string) error {
	// Not through c: its calls wait for a connection until ctx ends, and then hide why there was none.
	_, err := pb.NewKVClient(c.ActiveConnection()).Range(clientv3.WithRequireLeader(ctx), &pb.RangeRequest{
		Key: []byte(prefix), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(prefix)), Revision: math.MaxInt64,
	})
	if err == nil || errors.Is(rpctypes.Error(err), rpctypes.ErrFutureRev) {
		return nil
	}
	class, sentence := explain(err)
	switch class {
	case Permission:
		sentence = fmt.Sprintf("etcd does not let our user read the keys below %s: its role needs read permission "+
			"for exactly that prefix", prefix)
	case Unreachable, Certificate, Timeout:
		sentence += " (" + strings.Join(c.Endpoints(), ", ") + ")"
	}
	return &Error{class, sentence, err}
}
