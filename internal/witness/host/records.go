package host

import (
	"bytes"
	"slices"

	"github.com/clustermutex/unlocker/internal/protocol"
	"github.com/clustermutex/unlocker/pkg/metadata"
)

// holder is a process that holds locks.
type holder struct {
	boot                  string
	namespace, pid, start int64 // 0 for one of an earlier boot
	cgroup                int64 // where its command runs, which may live longer; 0 for none
}

// hold is what is kept of a lock that a process of this machine holds.
type hold struct {
	lock, uuid string
	token      int64
	holder     holder
}

// records picks the holds of this machine out of the keys in etcd. It keeps nothing.
type records struct {
	layout  protocol.Layout
	boot    string
	earlier []string
}

// hold returns the hold in the keys of one lock, if its holder's process is or was one of this machine and can be told
// from all others.
func (r *records) hold(lock string, fields []metadata.Field) (hold, bool) {
	if !slices.ContainsFunc(fields, r.ofThisMachine) {
		return hold{}, false // nearly all locks of a cluster
	}
	record := metadata.DecodeRecord(lock, fields)
	p := record.Process
	if p == nil || p.Detached || record.Token == 0 || !metadata.IsUUID(record.UUID) {
		return hold{}, false
	}
	h := hold{lock: lock, uuid: record.UUID, token: record.Token, holder: holder{boot: p.BootID}}
	if slices.Contains(r.earlier, p.BootID) {
		return h, true
	}
	h.holder.namespace = p.PIDNamespace
	h.holder.pid = record.PID
	h.holder.start = p.Start
	h.holder.cgroup = p.CgroupID
	return h, p.BootID == r.boot && p.Start > 0 && p.PIDNamespace > 0 && record.PID > 0 && !unreadable(&record)
}

// unreadable reports whether the record has a cgroup, and does not say which.
func unreadable(r *metadata.Record) bool {
	return r.Process.CgroupID < 0 || slices.ContainsFunc(r.Problems, func(p metadata.Problem) bool {
		return p.Field == metadata.FieldCgroupID && p.Reason != metadata.ReasonLeftover
	})
}

// ours reports whether it is a boot of this machine.
func (r *records) ours(boot string) bool { return boot == r.boot || slices.Contains(r.earlier, boot) }

// ofThisMachine reports whether the field may name a boot of this machine.
func (r *records) ofThisMachine(f metadata.Field) bool {
	if f.Name != metadata.FieldMetadata && f.Name != metadata.FieldBootID {
		return false
	}
	value := []byte(f.Value)
	return bytes.Contains(value, []byte(r.boot)) ||
		slices.ContainsFunc(r.earlier, func(boot string) bool { return bytes.Contains(value, []byte(boot)) })
}

// change is what one revision means for the holds of this machine.
type change struct {
	came []hold
	gone []string // locks that are not held any more as they were, or whose identity is not certain any more
	lost []string // uuids of statements that were deleted, or expired
}

// apply reads the events of one revision. A client writes a record in one transaction, so a new hold is complete.
func (r *records) apply(events []protocol.Event) (c change) {
	fields := map[string][]metadata.Field{}
	taken := map[string]bool{}
	for _, e := range events {
		key := r.layout.Parse(e.Key)
		switch {
		case key.Kind == protocol.KindDeath && e.Deleted:
			c.lost = append(c.lost, key.ID)
		case key.Kind != protocol.KindField || promise(key.ID):
		case key.ID == metadata.FieldUUID:
			c.gone = append(c.gone, key.Lock)
			taken[key.Lock] = !e.Deleted
			fields[key.Lock] = append(fields[key.Lock], e.KV.Field(key))
		case identifies(key.ID):
			c.gone = append(c.gone, key.Lock)
			fields[key.Lock] = append(fields[key.Lock], e.KV.Field(key))
		}
	}
	for lock := range taken {
		if h, ok := r.hold(lock, fields[lock]); taken[lock] && ok {
			c.came = append(c.came, h)
		}
	}
	return c
}

// promise reports whether the field is one of those that are written again and again.
func promise(name string) bool {
	switch name {
	case metadata.FieldAlertAt, metadata.FieldAutoUnlockAt, metadata.FieldAlive, metadata.FieldAsked,
		metadata.FieldExtended, metadata.FieldAcknowledged:
		return true
	}
	return false
}

// identifies reports whether the field may say which process holds the lock.
func identifies(name string) bool {
	switch name {
	case metadata.FieldMetadata, metadata.FieldPID, metadata.FieldBootID, metadata.FieldProcessStart,
		metadata.FieldPIDNamespace, metadata.FieldCgroupID, metadata.FieldDetached:
		return true
	}
	return false
}
