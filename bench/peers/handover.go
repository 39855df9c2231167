package main

import (
	"context"
	"encoding/json"
	"errors"
	"sync"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/bench/contest"
	"github.com/clustermutex/unlocker/bench/servers"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// overhanding is a prototype of the release that hands the lock over (docs/adr/0010), which was not built.
const overhanding = "prototype: hand-over in the release"

// overhander is a connection whose clients hand locks over: with everything that a hand-over costs, but without
// confirmations, which holds of less than a few seconds do not need, and without what is to be done when somebody dies
// or gives up. A client of the same connection is told of its turn by the answer to the release, others by one watch
// for each connection.
type overhander struct {
	etcd  *clientv3.Client
	id    string
	lease clientv3.LeaseID
	draft metadata.Draft
	end   context.CancelFunc

	joining sync.Mutex // one at a time, or those of one connection would disturb each other
	mu      sync.Mutex
	waiting map[string]chan int64 // by uuid; they get the token
}

// follower is what a waiter writes beside the one before it.
type follower struct {
	UUID, Connection string
	Lease            clientv3.LeaseID
	Fields           []metadata.Field // of its record
}

func overhanders(etcd *servers.Process) contest.Contestant {
	return contest.Contestant{Name: overhanding, Exclusive: true, Counters: etcdCounters(etcd),
		Connect: func(ctx context.Context) (contest.Connection, error) {
			c, err := servers.EtcdClient(etcd.Addr)
			if err != nil {
				return nil, err
			}
			o := &overhander{etcd: c, id: uuid.NewString(), draft: usualDraft(), waiting: map[string]chan int64{}}
			return o, o.open(ctx)
		}}
}

// open begins the lease and the watch.
func (o *overhander) open(ctx context.Context) error {
	grant, err := o.etcd.Grant(ctx, 10)
	if err != nil {
		return err
	}
	o.lease = grant.ID
	var living context.Context
	living, o.end = context.WithCancel(context.Background())
	alive, err := o.etcd.KeepAlive(living, o.lease)
	if err != nil {
		return err
	}
	go func() {
		for range alive {
		}
	}()
	mail := o.etcd.Watch(living, mailbox(o.id), clientv3.WithCreatedNotify(), clientv3.WithFilterDelete())
	if r := <-mail; !r.Created {
		return errors.New("the watch did not begin")
	}
	go func() {
		for r := range mail {
			for _, e := range r.Events {
				o.tell(string(e.Kv.Value), e.Kv.ModRevision)
			}
		}
	}()
	return nil
}

// mailbox is the key that tells the clients of a connection of their turns, one after the other.
func mailbox(connection string) string { return "/handover-mail/" + connection }

// tell tells a waiter that it has the lock.
func (o *overhander) tell(waiter string, token int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if told := o.waiting[waiter]; told != nil {
		told <- token
		delete(o.waiting, waiter)
	}
}

func (o *overhander) Client(context.Context) (contest.Client, error) { return o, nil }

func (o *overhander) Close() error {
	o.end()
	_, _ = o.etcd.Revoke(context.Background(), o.lease)
	return o.etcd.Close()
}

// Lock joins the queue, or takes the lock if it is free.
func (o *overhander) Lock(ctx context.Context, name string) (func() error, error) {
	a := attempt{o, "/handover/" + name + "/", uuid.NewString(), 0}
	told := make(chan int64, 1)
	o.mu.Lock()
	o.waiting[a.uuid] = told
	o.mu.Unlock()
	if err := a.join(ctx); err != nil {
		return nil, err
	}
	if a.token == 0 {
		select {
		case a.token = <-told:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return a.release, nil
}

// attempt is one attempt at a lock, and the hold that it may become.
type attempt struct {
	*overhander
	base  string // of the lock's keys
	uuid  string
	token int64 // 0: it waits
}

func (a *attempt) join(ctx context.Context) error {
	draft := a.draft
	draft.UUID = a.uuid
	fields, err := draft.Fields()
	if err != nil {
		return err
	}
	behind, err := json.Marshal(follower{a.uuid, a.id, a.lease, fields})
	if err != nil {
		return err
	}
	a.joining.Lock()
	defer a.joining.Unlock()
	tail := a.base + "tail"
	holder := a.base + metadata.FieldUUID
	look := []clientv3.Op{clientv3.OpGet(tail), clientv3.OpGet(holder)}
	seen, err := a.etcd.Txn(ctx).Then(look...).Commit()
	for err == nil {
		last := seen.Responses[0].GetResponseRange().Kvs
		held := seen.Responses[1].GetResponseRange().Kvs
		t := a.etcd.Txn(ctx)
		lease := clientv3.WithLease(a.lease)
		join := func(before string) []clientv3.Op {
			return []clientv3.Op{clientv3.OpPut(a.base+"ticket/"+a.uuid, "", lease),
				clientv3.OpPut(tail, a.uuid, lease), clientv3.OpPut(a.base+"next/"+before, string(behind), lease)}
		}
		switch {
		case len(last) > 0:
			t = t.If(clientv3.Compare(clientv3.ModRevision(tail), "=", last[0].ModRevision)).
				Then(join(string(last[0].Value))...)
		case len(held) > 0:
			t = t.If(absent(tail), clientv3.Compare(clientv3.ModRevision(holder), "=", held[0].ModRevision)).
				Then(join(string(held[0].Value))...)
		default:
			t = t.If(absent(tail), absent(holder)).Then(a.record(fields)...)
		}
		seen, err = t.Else(look...).Commit()
		if err == nil && seen.Succeeded {
			if len(last)+len(held) == 0 {
				a.token = seen.Header.Revision
			}
			return nil
		}
	}
	return err
}

func absent(key string) clientv3.Cmp { return clientv3.Compare(clientv3.CreateRevision(key), "=", 0) }

// record writes a record, and the token, which is the revision of a key of its own.
func (a *attempt) record(fields []metadata.Field, o ...clientv3.OpOption) []clientv3.Op {
	puts := []clientv3.Op{clientv3.OpPut(a.base+"token", "", o...)}
	for _, f := range fields {
		puts = append(puts, clientv3.OpPut(a.base+f.Name, f.Value, o...))
	}
	return puts
}

// release hands the lock over to the next waiter, or frees it if there is none.
func (a *attempt) release() error {
	ctx := context.Background()
	next := a.base + "next/" + a.uuid
	mine := clientv3.Compare(clientv3.ModRevision(a.base+"token"), "=", a.token)
	for {
		r, err := a.etcd.Get(ctx, next)
		if err != nil {
			return err
		}
		if len(r.Kvs) == 0 {
			done, err := a.etcd.Txn(ctx).If(mine, absent(next)).Then(a.free()...).Commit()
			if err != nil || done.Succeeded {
				return err
			}
			continue
		}
		var to follower
		if err := json.Unmarshal(r.Kvs[0].Value, &to); err != nil {
			return err
		}
		ticket := a.base + "ticket/" + to.UUID
		give := append(a.record(to.Fields, clientv3.WithLease(to.Lease)), clientv3.OpDelete(ticket),
			clientv3.OpDelete(next))
		if to.Connection != a.id {
			give = append(give, clientv3.OpPut(mailbox(to.Connection), to.UUID, clientv3.WithLease(to.Lease)))
		}
		done, err := a.etcd.Txn(ctx).If(mine, clientv3.Compare(clientv3.CreateRevision(ticket), ">", 0),
			clientv3.Compare(clientv3.ModRevision(next), "=", r.Kvs[0].ModRevision)).Then(give...).Commit()
		if err != nil {
			return err
		}
		if done.Succeeded {
			a.tell(to.UUID, done.Header.Revision)
			return nil
		}
	}
}

// free deletes the record and, if nobody is behind this attempt, the tail.
func (a *attempt) free() []clientv3.Op {
	deletes := []clientv3.Op{clientv3.OpDelete(a.base + "token"),
		clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(a.base+"tail"), "=", a.uuid)},
			[]clientv3.Op{clientv3.OpDelete(a.base + "tail")}, nil)}
	for _, f := range []string{metadata.FieldUUID, metadata.FieldAlertAt, metadata.FieldAutoUnlockAt,
		metadata.FieldMetadata} {
		deletes = append(deletes, clientv3.OpDelete(a.base+f))
	}
	return deletes
}
