package lockstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/internal/lockrecord"
	"github.com/clustermutex/unlocker/internal/locktxn"
	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// LockInfo is everything about one lock at one revision.
type LockInfo struct {
	Record   metadata.FullRecord   // the record under the lock's own name; without Fields if there is none
	Shares   []metadata.FullRecord // the holders of its shares, the oldest first
	Waiters  []metadata.Waiter     // in the order of the queue
	Delays   []metadata.LockDelay  // of the lock and of its shares
	Revision int64
}

// ReadLock reads everything about one lock at one revision, and then the witnesses' statements about its holders. The
// waiters for a share are those of its multi-holder lock.
func (s *Store) ReadLock(ctx context.Context, lock string) (LockInfo, error) {
	info, err := s.readLock(ctx, lock)
	if err != nil {
		return LockInfo{}, fmt.Errorf("read lock %q: %w", lock, err)
	}
	if err := s.applyStatements(ctx, info.Holders()); err != nil {
		return LockInfo{}, err
	}
	return info, nil
}

// Holders returns the records of all holders, the oldest first.
func (l *LockInfo) Holders() []*metadata.Record {
	var holders []*metadata.Record
	if l.Record.Token != 0 {
		holders = append(holders, &l.Record.Record)
	}
	for i := range l.Shares {
		holders = append(holders, &l.Shares[i].Record)
	}
	return holders
}

func (s *Store) readLock(ctx context.Context, lock string) (LockInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	shares, sharesEnd := s.layout.Shares(lock)
	delays, delaysEnd := s.layout.LockAndShareDelays(lock)
	resp, err := s.etcd.Txn(ctx).Then(
		clientv3.OpGet(s.layout.Record(lock), clientv3.WithPrefix(), clientv3.WithLimit(maxKeys)),
		clientv3.OpGet(shares, clientv3.WithRange(sharesEnd)),
		clientv3.OpGet(s.layout.Queue(lock), clientv3.WithPrefix()),
		clientv3.OpGet(delays, clientv3.WithRange(delaysEnd), clientv3.WithLimit(maxKeys)),
	).Commit()
	if err != nil {
		return LockInfo{}, err
	}
	look := LockInfo{
		Shares: s.sharesOf(lock, locktxn.Keys(resp, 1)), Waiters: s.waitersOf(locktxn.Keys(resp, 2)),
		Delays: s.delaysOf(lock, locktxn.Keys(resp, 3)), Revision: resp.Header.Revision,
	}
	if look.Record, err = s.decodeRecord(ctx, lock, locktxn.Keys(resp, 0), look.Revision); err != nil {
		return LockInfo{}, err
	}
	if queue := look.Record.QueueName(); queue != lock {
		read, err := s.etcd.Get(ctx, s.layout.Queue(queue), clientv3.WithPrefix(), clientv3.WithRev(look.Revision))
		if err != nil {
			return LockInfo{}, err
		}
		look.Waiters = s.waitersOf(read)
	}
	return look, nil
}

// sharesOf decodes the records of the shares of a lock. Only names decide what is a share, as for clients that take
// one.
func (s *Store) sharesOf(lock string, resp *clientv3.GetResponse) []metadata.FullRecord {
	var shares []metadata.FullRecord
	g := protocol.RecordAssembler{Each: func(name string, fields []metadata.Field, foreign []string) {
		record := lockrecord.Decode(name, fields, foreign...)
		if of, _, ok := metadata.ParseShare(name); ok && of == lock && record.Token != 0 {
			shares = append(shares, record)
		}
	}}
	for _, kv := range resp.Kvs {
		g.Add(s.layout.Parse(string(kv.Key)), locktxn.KV(kv))
	}
	g.Flush()
	slices.SortFunc(shares, func(a, b metadata.FullRecord) int { return cmp.Compare(a.Token, b.Token) })
	return shares
}

// ReadQueues reads the waiters for all locks that have any.
func (s *Store) ReadQueues(ctx context.Context) (map[string][]metadata.Waiter, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := s.etcd.Get(ctx, s.layout.Queues(), clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read the waiters for all locks: %w", err)
	}
	queues := map[string][]metadata.Waiter{}
	for _, w := range s.waitersOf(resp) {
		queues[w.Name] = append(queues[w.Name], w)
	}
	return queues, nil
}

func (s *Store) waitersOf(resp *clientv3.GetResponse) []metadata.Waiter {
	var waiters []metadata.Waiter
	for _, kv := range resp.Kvs {
		key := s.layout.Parse(string(kv.Key))
		if w := protocol.DecodeTicket(key, locktxn.KV(kv)); key.Kind == protocol.KindTicket && !w.Holding {
			waiters = append(waiters, w)
		}
	}
	slices.SortFunc(waiters, func(a, b metadata.Waiter) int { return cmp.Compare(a.Revision, b.Revision) })
	return waiters
}

// RemoveTicket removes the ticket of a waiter that should have given up by now. It returns [metadata.ErrChanged] if the
// ticket is gone or another one has its key. After any other error the ticket may or may not exist: read it again.
func (s *Store) RemoveTicket(ctx context.Context, w metadata.Waiter) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := locktxn.RemoveTicket(s.layout, w).Commit(ctx, s.etcd)
	switch {
	case err != nil:
		return fmt.Errorf("remove ticket %s of lock %q: %w", w.ID, w.Name, err)
	case !resp.Succeeded:
		return metadata.ErrChanged
	}
	return nil
}
