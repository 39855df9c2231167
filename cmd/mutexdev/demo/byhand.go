package demo

import (
	"context"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// dumps takes a lock without the library, as a shell script with etcdctl would: one key per field, in one transaction.
func (p *pod) dumps(ctx context.Context) error {
	const lock = "nightly/database dump"
	id := uuid.NewString()
	now := time.Now()
	if err := p.put(ctx, lock, map[string]string{
		metadata.FieldUUID:         id,
		metadata.FieldAlertAt:      metadata.FormatTime(now.Add(p.pace(2 * time.Minute))),
		metadata.FieldAutoUnlockAt: metadata.FormatTime(now.Add(p.pace(5 * time.Minute))),
		metadata.FieldLockedAt:     metadata.FormatTime(now),
		metadata.FieldOwner:        p.owner,
		metadata.FieldHostname:     p.host,
		metadata.FieldPurpose:      "dump of the main database, by a shell script",
		"script":                   "/opt/dump/dump.sh",
	}); err != nil {
		return err
	}
	p.rest(ctx, 90*time.Second)

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_, err := p.Etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.Value(p.Layout.Field(lock, metadata.FieldUUID)), "=", id)).
		Then(clientv3.OpDelete(p.Layout.Record(lock), clientv3.WithPrefix())).
		Commit()
	return err
}

// oldReport is a script written from memory: it holds a lock with unreadable deadlines.
func (p *pod) oldReport(ctx context.Context) error {
	err := p.put(ctx, "reports/weekly", map[string]string{
		metadata.FieldUUID:         uuid.NewString(),
		metadata.FieldAlertAt:      "soon",
		metadata.FieldAutoUnlockAt: "2026-11-21 08:00",
		metadata.FieldHostname:     p.host,
		metadata.FieldPurpose:      "weekly report",
	})
	p.rest(ctx, time.Hour)
	return err
}

// put writes the record unless the lock is held.
func (p *pod) put(ctx context.Context, lock string, fields map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var puts []clientv3.Op
	for name, value := range fields {
		puts = append(puts, clientv3.OpPut(p.Layout.Field(lock, name), value))
	}
	_, err := p.Etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(p.Layout.Field(lock, metadata.FieldUUID)), "=", 0)).
		Then(puts...).
		Commit()
	return err
}
