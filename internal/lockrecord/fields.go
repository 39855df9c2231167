package lockrecord

import (
	"slices"
	"strconv"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// The fields that the protocol acts on: each is a key of its own.
const (
	FieldUUID         = "uuid"
	FieldAlertAt      = "alert_at"
	FieldAutoUnlockAt = "auto_unlock_at"
	FieldAlive        = "alive"
	FieldAsked        = "asked"    // a [metadata.FinishRequest], JSON: the holder is asked to finish
	FieldExtended     = "extended" // a [metadata.MoreTime], JSON: the holder was given more time
	// FieldAcknowledged is a [metadata.Acknowledgement], JSON: an operator is looking at the lock. The key has a lease.
	FieldAcknowledged = "acknowledged"
)

// FieldMetadata is the field of the metadata document, a JSON object.
const FieldMetadata = "metadata"

// Members of the metadata document that code names; [table] has all of them. A small client may write each as a
// separate key, which overrides the member.
const (
	FieldOwner     = "owner"
	FieldHostname  = "hostname"
	FieldPurpose   = "purpose"
	FieldLockedAt  = "locked_at"
	FieldBacktrace = "backtrace"
	// FieldHeartbeatUntil is a time that is shown, and decides nothing.
	FieldHeartbeatUntil = "heartbeat_until"
)

// Members that identify the holder's process: see [metadata.Process].
const (
	FieldBootID   = "boot_id"
	FieldCgroupID = "cgroup_id"
	FieldDetached = "detached"
)

// Place is where a field is stored in etcd.
type Place int

// The places.
const (
	OwnKey      Place = iota // only a separate key
	KeyOfOthers              // the same, but not written by the holder
	DocumentKey              // the key of the metadata document
	Member                   // a member of that document, or a separate key
)

// field is a row of the table: a field that docs/protocol.md defines.
type field struct {
	name    string
	place   Place
	pointer any // to the value; its type determines the form of the field
}

type fields [numFields]field

const numFields = 27

// table returns the fields of one record, each with a pointer into d or p. Exactly the fields that have a row are read,
// written, checked and reserved. Those that the protocol acts on come first.
func table(d *metadata.FullRecord, p *metadata.Process) fields {
	return fields{
		{FieldUUID, OwnKey, &d.UUID},
		{FieldAlertAt, OwnKey, &d.AlertAt},
		{FieldAutoUnlockAt, OwnKey, &d.AutoUnlockAt},
		{FieldAlive, OwnKey, &d.Alive},
		{FieldAsked, KeyOfOthers, &d.FinishRequest},
		{FieldExtended, KeyOfOthers, &d.MoreTime},
		{FieldAcknowledged, KeyOfOthers, &d.Acknowledgement},
		{FieldMetadata, DocumentKey, nil},
		{FieldOwner, Member, &d.Owner},
		{FieldHostname, Member, &d.Hostname},
		{"pid", Member, &d.PID},
		{FieldPurpose, Member, &d.Purpose},
		{FieldLockedAt, Member, &d.LockedAt},
		{FieldBacktrace, Member, &d.Backtrace},
		{"client", Member, &d.Client},
		{"lock_delay", Member, &d.LockDelay},
		{FieldHeartbeatUntil, Member, &d.HeartbeatUntil},
		{FieldBootID, Member, &p.BootID},
		{"process_start", Member, &p.Start},
		{"pid_namespace", Member, &p.PIDNamespace},
		{"supervisor_start", Member, &p.SupervisorStart},
		{FieldCgroupID, Member, &p.CgroupID},
		{"pod_namespace", Member, &p.PodNamespace},
		{"pod_name", Member, &p.PodName},
		{"pod_uid", Member, &p.PodUID},
		{"container", Member, &p.Container},
		{FieldDetached, Member, &p.Detached},
	}
}

// find returns the row of a field; nil if the protocol does not define it.
func (all *fields) find(name string) *field {
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

// jsonValue returns the value for JSON, a time as text; nil if it is empty.
func (f *field) jsonValue() any {
	switch at := f.pointer.(type) {
	case *string:
		if *at != "" {
			return *at
		}
	case *int64:
		if *at != 0 {
			return *at
		}
	case *bool:
		if *at {
			return true
		}
	case *time.Time:
		if !at.IsZero() {
			return metadata.FormatTime(*at)
		}
	case *time.Duration:
		if *at != 0 {
			return delaySeconds(*at)
		}
	}
	return nil
}

// check returns an error, a sentence, if the value must not be written.
func (f *field) check() error {
	switch at := f.pointer.(type) {
	case *string:
		switch f.name {
		case FieldUUID:
			return checkUUID(*at)
		case FieldBacktrace: // already cut and made valid
			return nil
		}
		return checkText(f.name, *at)
	case *time.Time:
		if f.name == FieldHeartbeatUntil && at.IsZero() {
			return nil
		}
		return checkTime(f.name, *at)
	case *time.Duration:
		return metadata.CheckLockDelay(*at)
	}
	return nil
}

func (all *fields) check() error {
	for i := range all {
		if err := all[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// IsReserved reports whether docs/protocol.md defines the field, so that no attribute can have its name.
func IsReserved(name string) bool {
	all := table(&metadata.FullRecord{}, &metadata.Process{})
	return all.find(name) != nil
}

// ReservedFields returns the names of the fields that docs/protocol.md defines, in these places or, if none is given,
// in all. Those that the protocol acts on come first.
func ReservedFields(places ...Place) []string {
	var names []string
	for _, f := range table(&metadata.FullRecord{}, &metadata.Process{}) {
		if len(places) == 0 || slices.Contains(places, f.place) {
			names = append(names, f.name)
		}
	}
	return names
}

// Fact is a field of a holder for display, with its label.
type Fact struct{ Label, Value string }

// Facts returns the facts about the holder that a lock's page shows unchanged; a value may be empty. The page shows the
// purpose separately.
func Facts(h *metadata.Identity) []Fact {
	pid := ""
	if h.PID != 0 {
		pid = strconv.FormatInt(h.PID, 10)
	}
	return []Fact{{"owner", h.Owner}, {"host", h.Hostname}, {"pid", pid}}
}
