package metadata

import (
	"fmt"
	"slices"
	"time"
)

// The fields that the protocol acts on: each is a key of its own.
const (
	FieldUUID         = "uuid"
	FieldAlertAt      = "alert_at"
	FieldAutoUnlockAt = "auto_unlock_at"
	FieldAlive        = "alive"
	FieldAsked        = "asked"    // a [Request], JSON: somebody asks the holder to finish
	FieldExtended     = "extended" // an [Extension], JSON: somebody gave the holder more time
	// FieldAcknowledged is an [Acknowledgement], JSON: somebody looks at the lock. The key has a lease.
	FieldAcknowledged = "acknowledged"
)

// FieldMetadata is the field of the metadata document, a JSON object.
const FieldMetadata = "metadata"

// The members of the metadata document. A small client may write each as a key of its own, which then wins.
const (
	FieldOwner     = "owner"
	FieldHostname  = "hostname"
	FieldPID       = "pid"
	FieldPurpose   = "purpose"
	FieldLockedAt  = "locked_at"
	FieldBacktrace = "backtrace"
	FieldClient    = "client"
	FieldLockDelay = "lock_delay"
)

// The members of the metadata document that identify the holder's process: see [Process].
const (
	FieldBootID       = "boot_id"
	FieldProcessStart = "process_start"
	FieldPIDNamespace = "pid_namespace"
	FieldCgroupID     = "cgroup_id"
	FieldPodNamespace = "pod_namespace"
	FieldPodName      = "pod_name"
	FieldPodUID       = "pod_uid"
	FieldContainer    = "container"
	FieldDetached     = "detached"
)

// Holder is who holds a lock or waits for it, and what for. All of it may be unknown: empty or 0.
type Holder struct {
	Owner    string `json:"owner,omitempty"`
	Hostname string `json:"hostname,omitempty"`
	PID      int64  `json:"pid,omitempty"`
	Purpose  string `json:"purpose,omitempty"`
}

// Texts returns its texts, for readers that bound them or share their memory.
func (h *Holder) Texts() []*string { return []*string{&h.Owner, &h.Hostname, &h.Purpose} }

// Process identifies the process that holds a lock, beside its host name and process id, so that a witness can prove
// its end. A client writes what it can learn; what it cannot is empty or 0.
type Process struct {
	// BootID names the machine's present boot: /proc/sys/kernel/random/boot_id.
	BootID string `json:"boot_id,omitempty"`
	// Start is when the process began, in clock ticks since boot: /proc/PID/stat, field 22.
	Start int64 `json:"process_start,omitempty"`
	// PIDNamespace is where its process id counts: the inode of /proc/PID/ns/pid.
	PIDNamespace int64 `json:"pid_namespace,omitempty"`
	// CgroupID is where the process runs what works for it, so that its own end is not the end of the work: the inode
	// of the directory in the file system of cgroups, version 2.
	CgroupID int64 `json:"cgroup_id,omitempty"`

	// In Kubernetes, from the downward API.
	PodNamespace string `json:"pod_namespace,omitempty"`
	PodName      string `json:"pod_name,omitempty"`
	PodUID       string `json:"pod_uid,omitempty"`
	Container    string `json:"container,omitempty"`

	// Detached says that the work outlives the process, as with a reservation: its end proves nothing.
	Detached bool `json:"detached,omitempty"`
}

// Place is where a field stands in etcd.
type Place int

// The places.
const (
	OwnKey      Place = iota // a key of its own, and only there
	KeyOfOthers              // the same, but others than the holder write it
	DocumentKey              // the key of the metadata document
	Member                   // a member of that document, or a key of its own
)

// field is a row of the table: one field to which docs/protocol.md gives a meaning.
type field struct {
	name  string
	place Place
	label string // of a fact about the holder, on a page about one lock; empty: the page shows it in a way of its own
	at    any    // a pointer to where it is kept; its type is the form of the field
}

type fields [numFields]field

const numFields = 25

// table returns the fields of one record, each with its place in d and p. What has a row is read, written, checked and
// reserved; nothing else is. Those that the protocol acts on are first.
func table(d *Document, p *Process) fields {
	return fields{
		{FieldUUID, OwnKey, "", &d.UUID},
		{FieldAlertAt, OwnKey, "", &d.AlertAt},
		{FieldAutoUnlockAt, OwnKey, "", &d.AutoUnlockAt},
		{FieldAlive, OwnKey, "", &d.Alive},
		{FieldAsked, KeyOfOthers, "", &d.Asked},
		{FieldExtended, KeyOfOthers, "", &d.Extended},
		{FieldAcknowledged, KeyOfOthers, "", &d.Acknowledged},
		{FieldMetadata, DocumentKey, "", nil},
		{FieldOwner, Member, "owner", &d.Owner},
		{FieldHostname, Member, "host", &d.Hostname},
		{FieldPID, Member, "pid", &d.PID},
		{FieldPurpose, Member, "", &d.Purpose},
		{FieldLockedAt, Member, "", &d.LockedAt},
		{FieldBacktrace, Member, "", &d.Backtrace},
		{FieldClient, Member, "", &d.Client},
		{FieldLockDelay, Member, "", &d.LockDelay},
		{FieldBootID, Member, "", &p.BootID},
		{FieldProcessStart, Member, "", &p.Start},
		{FieldPIDNamespace, Member, "", &p.PIDNamespace},
		{FieldCgroupID, Member, "", &p.CgroupID},
		{FieldPodNamespace, Member, "", &p.PodNamespace},
		{FieldPodName, Member, "", &p.PodName},
		{FieldPodUID, Member, "", &p.PodUID},
		{FieldContainer, Member, "", &p.Container},
		{FieldDetached, Member, "", &p.Detached},
	}
}

// find returns the row of a field, nil if the protocol gives it no meaning.
func (all *fields) find(name string) *field {
	for i := range all {
		if all[i].name == name {
			return &all[i]
		}
	}
	return nil
}

// written is the value as JSON has it, a time as text; nil if there is nothing to say.
func (f *field) written() any {
	switch at := f.at.(type) {
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
			return FormatTime(*at)
		}
	case *time.Duration:
		if *at != 0 {
			return delaySeconds(*at)
		}
	}
	return nil
}

// check returns what is wrong with a value that is about to be written, as a sentence, or nil.
func (f *field) check() error {
	switch at := f.at.(type) {
	case *string:
		switch f.name {
		case FieldUUID:
			return checkUUID(*at)
		case FieldBacktrace: // is cut and made valid
			return nil
		}
		return checkText(f.name, *at)
	case *time.Time:
		return checkTime(f.name, *at)
	case *time.Duration:
		return CheckLockDelay(*at)
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

// IsReserved reports whether docs/protocol.md gives the field a meaning, so that no attribute can have its name.
func IsReserved(name string) bool {
	all := table(&Document{}, &Process{})
	return all.find(name) != nil
}

// ReservedFields returns the fields in these places to which docs/protocol.md gives a meaning, or those in all places.
// Those that the protocol acts on are first.
func ReservedFields(places ...Place) []string {
	var names []string
	for _, f := range table(&Document{}, &Process{}) {
		if len(places) == 0 || slices.Contains(places, f.place) {
			names = append(names, f.name)
		}
	}
	return names
}

// Fact is a field for people.
type Fact struct{ Label, Value string }

// Facts returns what a page about one lock shows of its holder as it is; a value may be empty. The purpose has a place
// of its own there.
func (h *Holder) Facts() []Fact {
	var facts []Fact
	for _, f := range table(&Document{Record: Record{Holder: *h}}, &Process{}) {
		if f.label != "" {
			facts = append(facts, Fact{f.label, f.text()})
		}
	}
	return facts
}

// Members returns the members of the metadata document that the record tells, as text, without attributes.
func (r *Record) Members() map[string]string {
	process := r.Process
	if process == nil {
		process = &Process{}
	}
	return members(&Document{Record: *r}, process)
}

// Members returns the members of the metadata document that say this, as text.
func (p *Process) Members() map[string]string { return members(&Document{}, p) }

func members(d *Document, p *Process) map[string]string {
	members := map[string]string{}
	for _, f := range table(d, p) {
		if text := f.text(); text != "" && f.place == Member {
			members[f.name] = text
		}
	}
	return members
}

// text is the value as a key of its own has it; empty if there is nothing to say.
func (f *field) text() string {
	if value := f.written(); value != nil {
		return fmt.Sprint(value)
	}
	return ""
}
