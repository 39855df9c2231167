package etcdmemory

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// kv implements etcd's KV service.
type kv struct{ link *Link }

func (k *kv) Range(ctx context.Context, r *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	done, err := k.do(ctx, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}})
	return done.GetResponseRange(), err
}

func (k *kv) Put(ctx context.Context, r *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	done, err := k.do(ctx, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}})
	return done.GetResponsePut(), err
}

func (k *kv) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest,
	_ ...grpc.CallOption) (*pb.DeleteRangeResponse, error) {
	done, err := k.do(ctx, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}})
	return done.GetResponseDeleteRange(), err
}

// do is a transaction of one operation.
func (k *kv) do(ctx context.Context, op *pb.RequestOp) (*pb.ResponseOp, error) {
	resp, err := k.Txn(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{op}})
	if err != nil {
		return nil, err
	}
	return resp.Responses[0], nil
}

func (k *kv) RangeStream(context.Context, *pb.RangeRequest,
	...grpc.CallOption) (grpc.ServerStreamingClient[pb.RangeStreamResponse], error) {
	return nil, status.Error(codes.Unimplemented, "an etcd in memory does not stream")
}

func (k *kv) Compact(context.Context, *pb.CompactionRequest, ...grpc.CallOption) (*pb.CompactionResponse, error) {
	return nil, status.Error(codes.Unimplemented, "an etcd in memory does not compact")
}

func (k *kv) Txn(ctx context.Context, r *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	if err := k.link.pass(ctx); err != nil {
		return nil, err
	}
	if err := check(r, maxOps); err != nil {
		return nil, err
	}
	if err := checkOverlap(r); err != nil {
		return nil, err
	}
	s := k.link.server
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.begin()
	p := s.plan(r)
	if err := s.checkPlan(p); err != nil {
		return nil, err
	}
	resp := c.run(p)
	c.commit()
	resp.Header.Revision = s.revision
	return resp, nil
}

// plan is a transaction with its compares evaluated. All of them, including those of nested transactions, see the keys
// as they were before anything was written.
type plan struct {
	succeeded bool
	ops       []*pb.RequestOp
	nested    map[int]*plan // by index of the operation
}

func (s *Server) plan(r *pb.TxnRequest) *plan {
	p := &plan{succeeded: true, ops: r.Success, nested: map[int]*plan{}}
	for _, c := range r.Compare {
		if !s.holds(c) {
			p.succeeded = false
			p.ops = r.Failure
		}
	}
	for i, op := range p.ops {
		if nested := op.GetRequestTxn(); nested != nil {
			p.nested[i] = s.plan(nested)
		}
	}
	return p
}

// holds reports whether a compare holds for each key of its range. If there is no key, it compares with an empty one,
// which has no value.
func (s *Server) holds(c *pb.Compare) bool {
	kvs := in(s.keys, c.Key, c.RangeEnd)
	if len(kvs) == 0 {
		return c.Target != pb.Compare_VALUE && holdsFor(c, &mvccpb.KeyValue{})
	}
	return !slices.ContainsFunc(kvs, func(kv *mvccpb.KeyValue) bool { return !holdsFor(c, kv) })
}

func holdsFor(c *pb.Compare, kv *mvccpb.KeyValue) bool {
	order := 0
	switch c.Target {
	case pb.Compare_VALUE:
		order = bytes.Compare(kv.Value, c.GetValue())
	case pb.Compare_CREATE:
		order = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		order = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VERSION:
		order = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_LEASE:
		order = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return order == 0
	case pb.Compare_NOT_EQUAL:
		return order != 0
	case pb.Compare_GREATER:
		return order > 0
	}
	return order < 0
}

// checkPlan refuses what is wrong given the current keys and leases.
func (s *Server) checkPlan(p *plan) error {
	for i, op := range p.ops {
		put := op.GetRequestPut()
		read := op.GetRequestRange()
		switch {
		case p.nested[i] != nil:
			if err := s.checkPlan(p.nested[i]); err != nil {
				return err
			}
		case put != nil && put.Lease != 0 && s.leases[clientv3.LeaseID(put.Lease)] == nil:
			return rpctypes.ErrGRPCLeaseNotFound
		case read != nil && read.Revision > s.revision:
			return rpctypes.ErrGRPCFutureRev
		}
	}
	return nil
}

func (c *change) run(p *plan) *pb.TxnResponse {
	resp := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: p.succeeded}
	for i, op := range p.ops {
		var r pb.ResponseOp
		switch {
		case p.nested[i] != nil:
			r.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: c.run(p.nested[i])}
		case op.GetRequestPut() != nil:
			r.Response = &pb.ResponseOp_ResponsePut{ResponsePut: c.doPut(op.GetRequestPut())}
		case op.GetRequestDeleteRange() != nil:
			r.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: c.doDelete(op.GetRequestDeleteRange())}
		default:
			r.Response = &pb.ResponseOp_ResponseRange{ResponseRange: c.doRange(op.GetRequestRange())}
		}
		resp.Responses = append(resp.Responses, &r)
	}
	return resp
}

func (c *change) doPut(r *pb.PutRequest) *pb.PutResponse {
	old := c.s.keys[string(r.Key)]
	c.put(r.Key, r.Value, clientv3.LeaseID(r.Lease))
	resp := &pb.PutResponse{Header: &pb.ResponseHeader{Revision: c.revision}}
	if r.PrevKv {
		resp.PrevKv = old
	}
	return resp
}

func (c *change) doDelete(r *pb.DeleteRangeRequest) *pb.DeleteRangeResponse {
	resp := &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{}}
	for _, kv := range in(c.s.keys, r.Key, r.RangeEnd) {
		resp.Deleted++
		if r.PrevKv {
			resp.PrevKvs = append(resp.PrevKvs, kv)
		}
		c.remove(string(kv.Key))
	}
	resp.Header.Revision = c.now()
	return resp
}

func (c *change) doRange(r *pb.RangeRequest) *pb.RangeResponse {
	found := in(c.s.at(r.Revision), r.Key, r.RangeEnd)
	resp := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: c.now()}, Count: int64(len(found))}
	if r.CountOnly {
		return resp
	}
	for _, kv := range found {
		if within(kv.ModRevision, r.MinModRevision, r.MaxModRevision) && within(kv.CreateRevision, r.MinCreateRevision,
			r.MaxCreateRevision) {
			resp.Kvs = append(resp.Kvs, kv)
		}
	}
	order(resp.Kvs, r)
	if n := int(r.Limit); n > 0 && len(resp.Kvs) > n {
		resp.Kvs, resp.More = resp.Kvs[:n], true
	}
	if r.KeysOnly {
		for i, kv := range resp.Kvs {
			resp.Kvs[i] = &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
				Version: kv.Version}
		}
	}
	return resp
}

func within(n, least, most int64) bool { return n >= least && (most == 0 || n <= most) }

// order sorts as requested, ascending by default.
func order(kvs []*mvccpb.KeyValue, r *pb.RangeRequest) {
	by := map[pb.RangeRequest_SortTarget]func(a, b *mvccpb.KeyValue) int{
		pb.RangeRequest_KEY:     func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) },
		pb.RangeRequest_VERSION: func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.Version, b.Version) },
		pb.RangeRequest_CREATE: func(a, b *mvccpb.KeyValue) int {
			return cmp.Compare(a.CreateRevision, b.CreateRevision)
		},
		pb.RangeRequest_MOD:   func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) },
		pb.RangeRequest_VALUE: func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Value, b.Value) },
	}[r.SortTarget]
	slices.SortStableFunc(kvs, func(a, b *mvccpb.KeyValue) int {
		if r.SortOrder == pb.RangeRequest_DESCEND {
			a, b = b, a
		}
		return by(a, b)
	})
}
