package lockstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
)

const (
	// pageKeys is the size of a page for servers that can not stream. They count what remains for every page, so that
	// small pages take quadratic time.
	pageKeys = 10_000
	// listPatience is how long a list may stand still: a member that hangs costs no more. But a member may also need
	// longer to begin, with millions of keys on a slow disk, so lists that stood still make the next ones wait longer.
	listPatience = 15 * time.Second
	maxPatience  = 16 * listPatience
)

// List calls each for every key below the prefix but those of the areas that [protocol.Layout.Unlisted] names, in the
// order of keys, all as they were at the revision that it returns. After an error what each got is void.
//
// Values are each's to keep. Where compaction overtook a list, the next one is a single request, which nothing
// overtakes.
func (s *Store) List(ctx context.Context, each func(protocol.KV)) (revision int64, err error) {
	if s.atOnce.Load() {
		revision, err = s.listAtOnce(ctx, each)
	} else {
		revision, err = s.listRanges(ctx, each)
	}
	s.atOnce.Store(errors.Is(err, rpctypes.ErrCompacted))
	if _, still := errors.AsType[standstill](err); still {
		s.stalls.Add(1)
	} else if err == nil {
		s.stalls.Store(0)
	}
	if err != nil {
		return 0, fmt.Errorf("list %s: %w", s.layout.Prefix(), err)
	}
	return revision, nil
}

// keyRange is half open.
type keyRange struct{ from, to string }

func (s *Store) listRanges(ctx context.Context, each func(protocol.KV)) (int64, error) {
	revision := int64(0)
	from := s.layout.Prefix()
	ranges := make([]keyRange, 0, 6)
	for _, area := range s.layout.Unlisted() {
		ranges = append(ranges, keyRange{from, area})
		from = protocol.End(area)
	}
	for _, r := range append(ranges, keyRange{from, protocol.End(s.layout.Prefix())}) {
		newest, err := s.read(ctx, r, revision, each)
		if err != nil {
			return 0, err
		}
		if revision == 0 { // later answers tell of a newer one, though they are as of this one
			revision = newest
		}
	}
	return revision, nil
}

// read reads one range as of revision, or of the newest one where that is 0, and returns the newest one.
func (s *Store) read(ctx context.Context, r keyRange, revision int64, each func(protocol.KV)) (int64, error) {
	if !s.noStreams.Load() {
		at, err := s.stream(ctx, r, revision, each)
		if locktxn.Code(err) != codes.Unimplemented {
			return at, err
		}
		s.noStreams.Store(true)
	}
	return s.pages(ctx, r, revision, each)
}

func (s *Store) stream(ctx context.Context, r keyRange, revision int64, each func(protocol.KV)) (int64, error) {
	ctx, alive, cancel := withPatience(ctx, s.patience())
	defer cancel()
	chunks, err := s.etcd.GetStream(ctx, r.from, clientv3.WithRange(r.to), clientv3.WithRev(revision))
	if err != nil {
		return 0, reason(ctx, err)
	}
	newest := int64(0)
	for chunk := range chunks { // to the end, so that the stream is not cut off
		if err = chunk.Err(); err != nil {
			continue
		}
		alive()
		deliver(chunk.Kvs, each)
		if chunk.Header != nil { // only the last one has it
			newest = chunk.Header.Revision
		}
	}
	if newest != 0 {
		return newest, nil
	}
	if err == nil {
		err = errors.New("the answer ended before its end")
	}
	return 0, reason(ctx, err)
}

func (s *Store) pages(ctx context.Context, r keyRange, revision int64, each func(protocol.KV)) (int64, error) {
	ctx, alive, cancel := withPatience(ctx, s.patience())
	defer cancel()
	for {
		page, err := s.etcd.Get(ctx, r.from, clientv3.WithRange(r.to), clientv3.WithRev(revision),
			clientv3.WithLimit(pageKeys))
		if err != nil {
			return 0, reason(ctx, err)
		}
		alive()
		deliver(page.Kvs, each)
		if revision == 0 {
			revision = page.Header.Revision
		}
		if !page.More {
			return revision, nil
		}
		r.from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

func (s *Store) listAtOnce(ctx context.Context, each func(protocol.KV)) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*s.patience())
	defer cancel()
	resp, err := s.etcd.Get(ctx, s.layout.Prefix(), clientv3.WithPrefix())
	if err != nil {
		return 0, err
	}
	unlisted := s.layout.Unlisted()
	deliver(resp.Kvs, func(kv protocol.KV) {
		for _, area := range unlisted {
			if strings.HasPrefix(kv.Key, area) {
				return
			}
		}
		each(kv)
	})
	return resp.Header.Revision, nil
}

func deliver(kvs []*mvccpb.KeyValue, each func(protocol.KV)) {
	for _, kv := range kvs {
		each(keyValue(kv))
	}
}

func keyValue(kv *mvccpb.KeyValue) protocol.KV {
	return protocol.KV{
		Key: string(kv.Key), Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
		Lease: kv.Lease,
	}
}

// patience is how long the next list may stand still: twice as long after each but the first that did.
func (s *Store) patience() time.Duration {
	patience := listPatience
	for n := s.stalls.Load(); n > 1 && patience < maxPatience; n-- {
		patience *= 2
	}
	return patience
}

// standstill is that a list came no further for so long.
type standstill time.Duration

func (e standstill) Error() string {
	return fmt.Sprintf("nothing came for %v: %v", time.Duration(e), context.DeadlineExceeded)
}

func (standstill) Unwrap() error { return context.DeadlineExceeded }

// withPatience returns a context that ends when alive was not called for so long.
func withPatience(parent context.Context,
	patience time.Duration) (ctx context.Context, alive func(), cancel context.CancelFunc) {
	ctx, stop := context.WithCancelCause(parent)
	timer := time.AfterFunc(patience, func() { stop(standstill(patience)) })
	return ctx, func() { timer.Reset(patience) }, func() { timer.Stop(); stop(nil) }
}

// reason is why ctx ended, where it did: the error that etcd's client makes of that says less. Otherwise it is err.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
