// Package lockrecord reads and writes the record of a hold: the fields in etcd, and what they mean.
//
// A lock is held while its uuid key exists. Next to that key are the two deadlines, which the protocol acts on, and the
// metadata document, which is for display. [Draft] makes the fields of a new record. [Decode] reads them back,
// whichever client wrote them: what cannot be read becomes a problem of the record, never an error, because a reader
// that stops at a bad record hides all the others.
//
// The package is pure: no clock, no I/O, no etcd.
package lockrecord

import "github.com/clustermutex/unlocker/pkg/metadata"

// Limits of a record, in bytes.
const (
	MaxBacktraceBytes = 16 << 10 // longer ones are cut, with a mark
	MaxRecordBytes    = 64 << 10 // all keys and values together
	MaxAttributes     = 64       // a count
	MaxDocumentBytes  = 2 << 10  // a finish request, more time or an acknowledgement
	MaxStatementBytes = 4 << 10  // a statement; longer ones are not read
	MaxDelayBytes     = 4 << 10  // a lock delay; longer ones are not read
)

// maxNumberBytes is the longest number that stays a number; longer ones become text.
const maxNumberBytes = 64

// IsLeftover reports whether the field was written before the hold in r began and therefore says nothing about it. A
// ModRevision of 0 means unknown.
func IsLeftover(r *metadata.Record, f metadata.Field) bool {
	return f.ModRevision > 0 && f.ModRevision < r.Token
}

// IsFieldName reports whether s can name a field or an attribute: it matches [a-z][a-z0-9_]{0,62}.
func IsFieldName(s string) bool {
	if s == "" || len(s) > 63 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// Texts returns pointers to the texts of h, for readers that bound them or share their memory.
func Texts(h *metadata.Identity) []*string { return []*string{&h.Owner, &h.Hostname, &h.Purpose} }

// AttachStatements sets the record's statements to those that are about its hold. It ignores a death whose cause does
// not prove it. Nil means that there is no statement.
func AttachStatements(r *metadata.Record, death, suspicion *metadata.Statement) {
	r.Death = nil
	if death != nil && death.IsAbout(r) && death.IsProof() {
		r.Death = death
	}
	r.Suspicion = nil
	if suspicion != nil && suspicion.IsAbout(r) {
		r.Suspicion = suspicion
	}
}
