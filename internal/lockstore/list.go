package lockstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/clustermutex/unlocker/internal/etcdconn/anymember"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
)

const (
	// pageKeys is the page size for servers that cannot stream. They count the remaining keys for every page, so small
	// pages take quadratic time.
	pageKeys = 10_000
	// pageBytes is how large such a page may be. A value may have more than a megabyte.
	pageBytes = 16 << 20
	// stallLimit is how long a list may make no progress, which bounds the cost of a hanging member.
	stallLimit = 30 * time.Second
	// firstStallLimit is how long the first member that is asked may give no data before another is asked.
	firstStallLimit = 2 * time.Second
)

// ListKeys calls each for every key below the prefix except those of [protocol.Layout.UnlistedAreas], in key order, as
// of the revision that it returns. After an error, discard what each was given.
//
// each may keep the values. If compaction overtakes a list, list again.
func (s *Store) ListKeys(ctx context.Context, each func(protocol.KV)) (revision int64, err error) {
	from := s.layout.Prefix()
	for _, area := range append(s.layout.UnlistedAreas(), protocol.End(from)) {
		newest, err := s.readRange(ctx, protocol.Range{From: from, To: area}, revision, each)
		if err != nil {
			return 0, fmt.Errorf("list %s: %w", s.layout.Prefix(), err)
		}
		from = protocol.End(area)
		if revision == 0 { // later answers name a newer one, although they show this one
			revision = newest
		}
	}
	return revision, nil
}

// readRange reads one range at a revision (0: the newest), and returns the newest revision. It asks another member when
// one is unavailable or hangs before it gave a key: a list has several ranges, and would never finish.
func (s *Store) readRange(ctx context.Context, r protocol.Range, revision int64,
	each func(protocol.KV)) (newest int64, err error) {
	given := false
	limit := firstStallLimit
	again := func(err error) bool {
		hangs := err == errStalled && limit == firstStallLimit
		if hangs {
			limit = stallLimit
		}
		return !given && (hangs || locktxn.Code(err) == codes.Unavailable || anymember.IsRefusal(true, err))
	}
	err = anymember.Retry(ctx, again, func(ctx context.Context) (err error) {
		ctx, alive, cancel := withStallLimit(ctx, limit)
		defer cancel()
		newest, err = s.readRangeFrom(ctx, r, revision, func(kvs []*mvccpb.KeyValue) {
			alive(func() {
				for _, kv := range kvs {
					given = true
					each(locktxn.KV(kv))
				}
			})
		})
		if err != nil && context.Cause(ctx) != nil {
			return context.Cause(ctx) // the error of etcd's client says less
		}
		return err
	})
	return newest, err
}

// readRangeFrom reads a range from one member, as a stream if the server can. It calls each for every part that
// arrives, which may be empty.
func (s *Store) readRangeFrom(ctx context.Context, r protocol.Range, revision int64,
	each func([]*mvccpb.KeyValue)) (newest int64, err error) {
	if !s.noStreams.Load() {
		newest, err = s.stream(ctx, r, revision, each)
		if locktxn.Code(err) != codes.Unimplemented {
			return newest, err
		}
		s.noStreams.Store(true)
	}
	return s.pages(ctx, r, revision, each)
}

func (s *Store) stream(ctx context.Context, r protocol.Range, revision int64,
	each func([]*mvccpb.KeyValue)) (int64, error) {
	chunks, err := s.etcd.GetStream(ctx, r.From, clientv3.WithRange(r.To), clientv3.WithRev(revision))
	if err != nil {
		return 0, err
	}
	newest := int64(0)
	for chunk := range chunks { // read to the end, so that the stream is not cancelled
		if err = chunk.Err(); err != nil {
			continue
		}
		each(chunk.Kvs)
		if chunk.Header != nil { // only the last one has it
			newest = chunk.Header.Revision
		}
	}
	if newest != 0 {
		return newest, nil
	}
	if err == nil {
		err = errors.New("the answer ended early")
	}
	return 0, err
}

func (s *Store) pages(ctx context.Context, r protocol.Range, revision int64,
	each func([]*mvccpb.KeyValue)) (int64, error) {
	keys := int64(pageKeys)
	for {
		page, err := s.paged.Get(ctx, r.From, clientv3.WithRange(r.To), clientv3.WithRev(revision),
			clientv3.WithLimit(keys))
		if locktxn.Code(err) == codes.ResourceExhausted && keys > 1 { // too large
			keys = max(1, keys/4)
			each(nil) // the server has answered
			continue
		}
		if err != nil {
			return 0, err
		}
		keys = min(2*keys, pageKeys)
		each(page.Kvs)
		if revision == 0 {
			revision = page.Header.Revision
		}
		if !page.More {
			return revision, nil
		}
		r.From = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

var errStalled = fmt.Errorf("no data for %v: %w", stallLimit, context.DeadlineExceeded)

// withStallLimit returns a context that ends when alive has not been called for [stallLimit], and for first in the
// beginning. Time spent on data that has arrived does not count.
func withStallLimit(parent context.Context, first time.Duration) (ctx context.Context, alive func(use func()),
	cancel context.CancelFunc) {
	ctx, stop := context.WithCancelCause(parent)
	timer := time.AfterFunc(first, func() { stop(errStalled) })
	alive = func(use func()) {
		timer.Stop()
		use()
		timer.Reset(stallLimit)
	}
	return ctx, alive, func() { timer.Stop(); stop(nil) }
}

// withMaxAnswer returns a KV that refuses answers of more than pageBytes, with ResourceExhausted and before they are in
// memory. etcd itself limits only the number of keys. The answers of a client without a connection are in memory
// already. A KV that the caller put in, for a namespace, stays as it is.
func withMaxAnswer(etcd *clientv3.Client) clientv3.KV {
	if etcd.ActiveConnection() == nil || reflect.TypeOf(etcd.KV) != reflect.TypeOf(clientv3.NewKV(etcd)) {
		return etcd
	}
	return clientv3.NewKVFromKVClient(maxAnswerKV{clientv3.RetryKVClient(etcd)}, etcd)
}

type maxAnswerKV struct{ pb.KVClient }

func (b maxAnswerKV) Range(ctx context.Context, r *pb.RangeRequest,
	opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	return b.KVClient.Range(ctx, r, append(slices.Clip(opts), grpc.MaxCallRecvMsgSize(pageBytes))...)
}

// ListPrefix calls each for every key with this prefix, in key order, at this revision (0: the newest), and returns
// etcd's newest revision. It is for the areas that [Store.ListKeys] leaves out, and for keys of other libraries.
func (s *Store) ListPrefix(ctx context.Context, prefix string, revision int64,
	each func(protocol.KV)) (newest int64, err error) {
	newest, err = s.readRange(ctx, protocol.Range{From: prefix, To: protocol.End(prefix)}, revision, each)
	if err != nil {
		return 0, fmt.Errorf("list %s: %w", prefix, err)
	}
	return newest, nil
}
