package host

import (
	"bytes"
	"slices"

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

// Concerns reports whether the keys of a lock may name a boot of this machine: few locks of a cluster do.
func (m Machine) Concerns(fields []metadata.Field) bool {
	return slices.ContainsFunc(fields, func(f metadata.Field) bool {
		if f.Name != metadata.FieldMetadata && f.Name != metadata.FieldBootID {
			return false
		}
		value := []byte(f.Value)
		return bytes.Contains(value, []byte(m.BootID)) ||
			slices.ContainsFunc(m.Earlier, func(boot string) bool { return bytes.Contains(value, []byte(boot)) })
	})
}

// hold returns the hold of a record, if its holder's process is or was one of this machine and can be told from all
// others.
func (m Machine) hold(r *metadata.Record) (hold, bool) {
	p := r.Process
	if p == nil || p.Detached || r.Token == 0 || !metadata.IsUUID(r.UUID) {
		return hold{}, false
	}
	h := hold{lock: r.Name, uuid: r.UUID, token: r.Token, holder: holder{boot: p.BootID}}
	if slices.Contains(m.Earlier, p.BootID) {
		return h, true
	}
	h.holder.namespace = p.PIDNamespace
	h.holder.pid = r.PID
	h.holder.start = p.Start
	h.holder.cgroup = p.CgroupID
	return h, p.BootID == m.BootID && p.Start > 0 && p.PIDNamespace > 0 && r.PID > 0 && !unreadable(r)
}

// unreadable reports whether the record has a cgroup, and does not say which.
func unreadable(r *metadata.Record) bool {
	return r.Process.CgroupID < 0 || slices.ContainsFunc(r.Problems, func(p metadata.Problem) bool {
		return p.Field == metadata.FieldCgroupID && p.Reason != metadata.ReasonLeftover
	})
}
