// Package lockstore reads and removes locks in etcd for readers and operators: it lists, watches, reads and removes
// locks, reads how holds ended, announces running unlockers, and records the statements of witnesses. Holders use
// package mutex instead.
//
// Every call has its own deadline, because etcd's client waits forever if no member answers. Every removal is one
// guarded transaction, and none is sent twice: if the answer is lost, the store reads again and reports what it finds.
package lockstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/etcdconn/anymember"
	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// callTimeout is the time limit of one request, unless the caller's is shorter.
const callTimeout = 5 * time.Second

// Store reads and removes the locks of one layout. It is safe for concurrent use.
type Store struct {
	client *clientv3.Client
	etcd   anymember.Client
	paged  clientv3.KV // refuses answers of more than pageBytes
	layout protocol.Layout
	log    zerolog.Logger

	unrecorded func(protocol.Action) // may be nil

	progressInterval time.Duration // how often a watch asks etcd for its progress
	maxSilence       time.Duration // without a sign of life; then a watch counts as dead

	history, audit, presence, statements *leasePool

	noStreams atomic.Bool // the server is older than 3.7
}

// Option changes a Store from its defaults.
type Option func(*Store)

// WithLog sets the logger for what operators should know, such as a forced removal that could not be recorded in etcd.
func WithLog(log zerolog.Logger) Option { return func(s *Store) { s.log = log } }

// WithRetention sets how long endings are kept, give or take an hour.
func WithRetention(d time.Duration) Option {
	return func(s *Store) { s.history.ttl = d + s.history.acceptFor }
}

// WithUnrecorded makes the store call f before it removes a hold by force without history and audit, because etcd is
// out of space: nothing else records the removal.
func WithUnrecorded(f func(protocol.Action)) Option { return func(s *Store) { s.unrecorded = f } }

// WithProgressInterval makes a watch ask etcd for a sign of life this often instead of every [ProgressInterval], and
// end after four times as long without one.
func WithProgressInterval(d time.Duration) Option {
	return func(s *Store) { s.progressInterval, s.maxSilence = d, 4*d }
}

// New returns a store that uses the client of etcd, which the caller closes.
func New(client *clientv3.Client, l protocol.Layout, opts ...Option) *Store {
	etcd := anymember.NewClient(client)
	s := &Store{
		client: client, etcd: etcd, paged: withMaxAnswer(client), layout: l, log: zerolog.Nop(),
		progressInterval: ProgressInterval, maxSilence: 4 * ProgressInterval,
		history:  newLeasePool(etcd, protocol.HistoryRetention+time.Hour, time.Hour),
		audit:    newLeasePool(etcd, protocol.AuditRetention+time.Hour, time.Hour),
		presence: newLeasePool(etcd, protocol.PresenceTTL, protocol.PresenceTTL/3),

		statements: newLeasePool(etcd, protocol.StatementTTL+time.Hour, time.Hour),
	}
	for _, o := range opts {
		o(s)
	}
	return s
}

// maxKeys is how many keys of one record's range are read at once: far more than a valid record has.
const maxKeys = 1000

// ReadRecord reads one lock and returns the revision at which it was read. A record without Fields means that there
// is none.
func (s *Store) ReadRecord(ctx context.Context, lock string) (metadata.FullRecord, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := s.etcd.Get(ctx, s.layout.Record(lock), clientv3.WithPrefix(), clientv3.WithLimit(maxKeys))
	if err != nil {
		return metadata.FullRecord{}, 0, fmt.Errorf("read lock %q: %w", lock, err)
	}
	record, err := s.decodeRecord(ctx, lock, resp, resp.Header.Revision)
	if err != nil {
		return metadata.FullRecord{}, 0, fmt.Errorf("read lock %q: %w", lock, err)
	}
	return record, resp.Header.Revision, nil
}

// decodeRecord decodes the record whose range begins with these keys, at this revision.
func (s *Store) decodeRecord(ctx context.Context, lock string, resp *clientv3.GetResponse,
	revision int64) (metadata.FullRecord, error) {
	var fields []metadata.Field
	var foreign []string
	for _, kv := range resp.Kvs {
		switch key := s.layout.Parse(string(kv.Key)); key.Kind {
		case protocol.KindField:
			fields = append(fields, locktxn.KV(kv).Field(key))
		case protocol.KindForeign:
			foreign = append(foreign, string(kv.Key))
		}
	}
	if resp.More {
		more, err := s.protocolFields(ctx, lock, revision)
		if err != nil {
			return metadata.FullRecord{}, err
		}
		fields = append(fields, more...)
		slices.SortFunc(fields, func(a, b metadata.Field) int { return strings.Compare(a.Name, b.Name) })
		fields = slices.CompactFunc(fields, func(a, b metadata.Field) bool { return a.Name == b.Name })
	}
	return lockrecord.Decode(lock, fields, foreign...), nil
}

// protocolFields reads the protocol's fields one by one, so that thousands of other keys cannot hide them.
func (s *Store) protocolFields(ctx context.Context, lock string, revision int64) ([]metadata.Field, error) {
	var reads []clientv3.Op
	for _, field := range lockrecord.ReservedFields() {
		reads = append(reads, clientv3.OpGet(s.layout.Field(lock, field), clientv3.WithRev(revision)))
	}
	resp, err := s.etcd.Txn(ctx).Then(reads...).Commit()
	if err != nil {
		return nil, err
	}
	var fields []metadata.Field
	for _, r := range resp.Responses {
		fields = append(fields, locktxn.Fields(s.layout, (*clientv3.GetResponse)(r.GetResponseRange()))...)
	}
	return fields, nil
}
