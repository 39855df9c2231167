package lockstore

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// bounded returns reads that refuse an answer of more bytes, with ResourceExhausted and before it is in memory. etcd
// knows only limits in keys. What a client without a connection answers is in memory already.
func bounded(etcd *clientv3.Client, bytes int) clientv3.KV {
	if etcd.ActiveConnection() == nil {
		return etcd
	}
	return clientv3.NewKVFromKVClient(boundedRange{clientv3.RetryKVClient(etcd), bytes}, etcd)
}

type boundedRange struct {
	pb.KVClient
	bytes int
}

// Range implements [pb.KVClient].
func (b boundedRange) Range(ctx context.Context, r *pb.RangeRequest,
	opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	return b.KVClient.Range(ctx, r, append(slices.Clip(opts), grpc.MaxCallRecvMsgSize(b.bytes))...)
}
