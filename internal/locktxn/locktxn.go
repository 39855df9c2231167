// Package locktxn builds the transactions of the lock protocol as data: what is compared, what is written, and what is
// read when a compare fails. They are in one package because the safety of every lock rests on these compares: without
// any one of them the checked model breaks (docs/protocol.md).
//
// An error of a commit says nothing about its outcome, and neither does a failed compare alone: etcd's client may have
// sent the transaction twice. So the Else branches read the record, and the caller compares the uuid that it finds.
package locktxn

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Txn is one transaction.
type Txn struct {
	If         []clientv3.Cmp
	Then, Else []clientv3.Op

	// OnlyRecord is the name of the only record that the transaction concerns, if it may share a request with
	// transactions about other records: all that it compares and writes belongs to that record, to one attempt, or to
	// shares, whose acquisitions share no request.
	OnlyRecord string
}

// Commit sends the transaction.
func (t Txn) Commit(ctx context.Context, kv clientv3.KV) (*clientv3.TxnResponse, error) {
	return kv.Txn(ctx).If(t.If...).Then(t.Then...).Else(t.Else...).Commit()
}

// Nest returns one transaction that runs each of ts with its own compares: one that fails does not stop the others.
func Nest(ts []Txn) Txn {
	ops := make([]clientv3.Op, len(ts))
	for i, t := range ts {
		ops[i] = clientv3.OpTxn(t.If, t.Then, t.Else)
	}
	return Txn{Then: ops}
}

// MaxOps is etcd's default limit of compares, and of operations in a branch, in one transaction.
const MaxOps = 128

// MaxBytes is etcd's default limit on the size of a transaction (1.5 MiB), less what etcd itself adds.
const MaxBytes = 3<<19 - 1<<10

// Bytes estimates the size of the transaction, erring on the high side.
func (t Txn) Bytes() int {
	n := 0
	for _, c := range t.If {
		n += maxOpOverhead + len(c.KeyBytes()) + len(c.GetCompare().GetRangeEnd()) + len(c.ValueBytes())
	}
	for _, ops := range [][]clientv3.Op{t.Then, t.Else} {
		for _, op := range ops {
			n += maxOpOverhead + len(op.KeyBytes()) + len(op.RangeBytes()) + len(op.ValueBytes())
			if op.IsTxn() {
				cmps, thenOps, elseOps := op.Txn()
				n += Txn{If: cmps, Then: thenOps, Else: elseOps}.Bytes()
			}
		}
	}
	return n
}

// maxOpOverhead is the maximum size of a compare or an operation besides its keys and its value.
const maxOpOverhead = 48

// Keys returns the keys that operation op read.
func Keys(r *clientv3.TxnResponse, op int) *clientv3.GetResponse {
	if op >= len(r.Responses) || r.Responses[op].GetResponseRange() == nil {
		return &clientv3.GetResponse{} // not from etcd
	}
	return (*clientv3.GetResponse)(r.Responses[op].GetResponseRange())
}

// Fields returns the fields of a record that a range has.
func Fields(l protocol.Layout, resp *clientv3.GetResponse) []metadata.Field {
	fields := make([]metadata.Field, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		if key := l.Parse(string(kv.Key)); key.Kind == protocol.KindField {
			fields = append(fields, KV(kv).Field(key))
		}
	}
	return fields
}

// KV converts a key from etcd's form.
func KV(kv *mvccpb.KeyValue) protocol.KV {
	return protocol.KV{Key: string(kv.Key), Value: kv.Value, CreateRevision: kv.CreateRevision,
		ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
}

// putLater puts a time, unless the stored one is as late.
func putLater(key, to string) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(key), "<", to)},
		[]clientv3.Op{clientv3.OpPut(key, to)}, nil)
}

// absent returns the compare that the key does not exist.
func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

func readRecord(l protocol.Layout, lock string) clientv3.Op {
	return clientv3.OpGet(l.Record(lock), clientv3.WithPrefix())
}

func deleteRecord(l protocol.Layout, lock string) clientv3.Op {
	return clientv3.OpDelete(l.Record(lock), clientv3.WithPrefix())
}

// IsRefused reports whether err means that etcd did not and will not commit the request: a bad request, too many
// requests, no permission, a lease that is gone, a member that cannot serve. Any other error leaves the outcome open:
// the write may have been done, or may be done later. A refusal concerns only its own send: an earlier one of the same
// transaction may still be in flight.
//
// Out of space is not a refusal: etcd notices that the quota is exceeded while it applies a transaction, applies it all
// the same and answers with that error. Of 20 KB puts by 32 clients at the limit, one in five was committed this way.
func IsRefused(err error) bool {
	switch Code(err) {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated, codes.NotFound:
		return true
	}
	return MemberRefused(err)
}

// MemberRefused reports whether only the member that was asked refused, so that another one may serve: it is
// overloaded, a learner, or of a cluster that is older than the request.
func MemberRefused(err error) bool {
	return isError(err, rpctypes.ErrTooManyRequests) || isError(err, rpctypes.ErrNotCapable) ||
		isError(err, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner))
}

// IsPostponed reports whether etcd did not commit the request, but may if it is sent again: a member refused, or the
// user's auth token has expired. etcd's client fails once with the latter and gets another token.
func IsPostponed(err error) bool {
	for _, expired := range []error{rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision, rpctypes.ErrUserEmpty} {
		if errors.Is(err, expired) {
			return true
		}
	}
	return MemberRefused(err)
}

// IsNoSpace reports whether etcd refuses puts until space is freed and its alarm disarmed. It may have committed this
// last one.
func IsNoSpace(err error) bool { return isError(err, rpctypes.ErrNoSpace) }

// IsLeaseGone reports whether the request named a lease that no longer exists.
func IsLeaseGone(err error) bool { return isError(err, rpctypes.ErrLeaseNotFound) }

// Code returns the gRPC code of an error of etcd's client, which has two forms.
func Code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// isError is [errors.Is] that also recognizes an error that etcd's client has not translated from gRPC's form.
func isError(err, target error) bool {
	return errors.Is(err, target) || errors.Is(rpctypes.Error(err), target)
}

// DeleteKey deletes a key outside the locks' records, if its value is still the one seen at this mod revision.
func DeleteKey(key string, revision int64) Txn {
	return Txn{
		If:   []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
		Then: []clientv3.Op{clientv3.OpDelete(key)},
	}
}

// PutTombstone puts the tombstone of an attempt, and does not end the hold. It prevents the second commit, by a late
// send, of an acquisition after its hold was released, or of [AddTask] after the task was done and removed. The
// tombstone lives as long as the lease.
func PutTombstone(l protocol.Layout, lock, uuid string, lease clientv3.LeaseID) Txn {
	return Txn{Then: []clientv3.Op{clientv3.OpPut(l.Cancelled(uuid), lock, clientv3.WithLease(lease))}}
}

// leaveQueue deletes the ticket of an attempt, and the tail if it names the attempt. An attempt that is both first and
// tail is the only waiter.
func leaveQueue(l protocol.Layout, lock, uuid string) []clientv3.Op {
	return []clientv3.Op{
		clientv3.OpDelete(l.Ticket(lock, uuid)),
		clientv3.OpTxn([]clientv3.Cmp{tailNames(l, lock, uuid)}, []clientv3.Op{clientv3.OpDelete(l.Tail(lock))}, nil),
	}
}

// tailNames returns the compare that the tail names the attempt, which then has the newest ticket.
func tailNames(l protocol.Layout, lock, uuid string) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(l.Tail(lock)), "=", uuid)
}
