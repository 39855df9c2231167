// Package compact keeps lock records in two thirds of the memory of a [metadata.Record], for programs that keep all of
// them. What goes over all of them gets whole records one by one, in the same memory: [Each].
package compact

import (
	"iter"
	"time"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

// Record is a [metadata.Record] in little memory. What locks of one process have in common, and what most locks lack,
// lies behind pointers that are never nil, so all fields read like those of a metadata.Record. It is shared by all its
// readers: never write to it. Make it with [New].
type Record struct {
	Name    string
	UUID    string
	Purpose string
	*Holder
	*Rest
	Alive *metadata.Alive

	LockedAt     time.Time
	AlertAt      time.Time
	AutoUnlockAt time.Time

	Token            int64
	Revision         int64
	DeadlineRevision int64

	Seen metadata.Seen
}

// Holder is what the locks of one process have in common.
type Holder struct {
	Owner    string
	Hostname string
	PID      int64
	Process  *metadata.Process
}

// Rest is what most locks lack. Its zero value stands for none of it.
type Rest struct {
	Attributes   map[string]any
	Problems     []metadata.Problem
	Asked        *metadata.Request
	Extended     *metadata.Extension
	Acknowledged *metadata.Acknowledgement
	Death        *metadata.Statement
	Suspicion    *metadata.Statement
	LockDelay    time.Duration
	Misplaced    bool
}

// Nothing is the rest of records that lack all of it, to be shared by them.
type Nothing struct{ rest Rest }

// New returns the compact form of a record. Its holder and nothing can be shared with other records; nil if they are
// not.
func New(r *metadata.Record, holder *Holder, nothing *Nothing) Record {
	if holder == nil {
		h := HolderOf(r)
		holder = &h
	}
	return Record{
		Name: r.Name, UUID: r.UUID, Purpose: r.Purpose, Holder: holder, Rest: restOf(r, nothing), Alive: r.Alive,
		LockedAt: r.LockedAt, AlertAt: r.AlertAt, AutoUnlockAt: r.AutoUnlockAt, Token: r.Token, Revision: r.Revision,
		DeadlineRevision: r.DeadlineRevision, Seen: r.Seen,
	}
}

// Of returns the compact form of one record.
func Of(r *metadata.Record) *Record {
	c := New(r, nil, nil)
	return &c
}

// HolderOf returns the holder of a record.
func HolderOf(r *metadata.Record) Holder {
	return Holder{Owner: r.Owner, Hostname: r.Hostname, PID: r.PID, Process: r.Process}
}

func restOf(r *metadata.Record, nothing *Nothing) *Rest {
	if nothing == nil {
		nothing = &Nothing{}
	}
	if r.Attributes == nil && r.Problems == nil && r.Asked == nil && r.Extended == nil && r.Acknowledged == nil &&
		r.Death == nil && r.Suspicion == nil && r.LockDelay == 0 && !r.Misplaced {
		return &nothing.rest
	}
	return &Rest{
		Attributes: r.Attributes, Problems: r.Problems, Asked: r.Asked, Extended: r.Extended,
		Acknowledged: r.Acknowledged, Death: r.Death, Suspicion: r.Suspicion, LockDelay: r.LockDelay,
		Misplaced: r.Misplaced,
	}
}

// Fill makes to the record that this is the compact form of.
func (r *Record) Fill(to *metadata.Record) { *to = r.whole() }

// Whole returns the record that this is the compact form of, in memory of its own.
func (r *Record) Whole() *metadata.Record {
	whole := r.whole()
	return &whole
}

func (r *Record) whole() metadata.Record {
	return metadata.Record{
		Name: r.Name, UUID: r.UUID, Owner: r.Owner, Hostname: r.Hostname, Purpose: r.Purpose, PID: r.PID,
		LockedAt: r.LockedAt, AlertAt: r.AlertAt, AutoUnlockAt: r.AutoUnlockAt, LockDelay: r.LockDelay, Token: r.Token,
		Revision: r.Revision, DeadlineRevision: r.DeadlineRevision, Alive: r.Alive, Process: r.Process, Asked: r.Asked,
		Extended: r.Extended, Acknowledged: r.Acknowledged, Attributes: r.Attributes, Problems: r.Problems,
		Misplaced: r.Misplaced, Death: r.Death, Suspicion: r.Suspicion, Seen: r.Seen,
	}
}

// Each goes over whole records without keeping them: each is overwritten by the next one.
func Each(records []*Record) iter.Seq[*metadata.Record] {
	return func(yield func(*metadata.Record) bool) {
		var whole metadata.Record
		for _, r := range records {
			whole = r.whole()
			if !yield(&whole) {
				return
			}
		}
	}
}

// All returns the compact forms of records, in their order.
func All(records []*metadata.Record) []*Record {
	all := make([]*Record, len(records))
	var nothing Nothing
	for i, r := range records {
		c := New(r, nil, &nothing)
		all[i] = &c
	}
	return all
}

// AllWhole returns whole records, in their order.
func AllWhole(records []*Record) []*metadata.Record {
	all := make([]*metadata.Record, len(records))
	for i, r := range records {
		all[i] = r.Whole()
	}
	return all
}
