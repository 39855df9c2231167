// Package lockrecord reads and writes the record of a hold: the fields in etcd, and what they mean.
//
// A lock is held while its uuid key exists. Next to that key are the two deadlines, which the protocol acts on, and the
// metadata document, which is for display. [Draft] makes the fields of a new record. [Decode] reads them back,
// whichever client wrote them: what cannot be read becomes a problem of the record, never an error, because a reader
// that stops at a bad record hides all the others.
//
// The package is pure: no clock, no I/O, no etcd.
package lockrecord

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/clustermutex/unlocker/pkg/metadata"
)

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

// The most that an unlocker may exclude.
const (
	maxExclusions     = 64
	maxExclusionBytes = metadata.MaxNameBytes
)

// CheckExclude checks the globs of locks that an unlocker never removes.
func CheckExclude(globs []string) error {
	if len(globs) > maxExclusions {
		return fmt.Errorf("%d globs are too many: at most %d are published to readers of the locks", len(globs),
			maxExclusions)
	}
	for _, glob := range globs {
		switch {
		case glob == "":
			return errors.New("a glob is empty: give a glob of lock names, or leave it out")
		case !utf8.ValidString(glob):
			return fmt.Errorf("a glob is not valid UTF-8: %q", glob)
		case len(glob) > maxExclusionBytes:
			return fmt.Errorf("a glob has %d bytes, more than %d", len(glob), maxExclusionBytes)
		}
	}
	return nil
}

// UnmarshalPresence decodes the presence of an unlocker. A removal policy that cannot be read becomes nil and does not
// fail the rest: an unlocker of another version runs all the same.
func UnmarshalPresence(text []byte) (metadata.Presence, error) {
	read := struct {
		metadata.Presence
		Sweep json.RawMessage `json:"sweep"`
	}{}
	if err := json.Unmarshal(text, &read); err != nil {
		return metadata.Presence{}, err
	}
	read.RemovalPolicy = readRemovalPolicy(read.Sweep)
	return read.Presence, nil
}

// unset stands for a member that the document does not have. No policy has this value.
const unset = metadata.Seconds(-1)

// readRemovalPolicy returns nil unless all members are present and valid.
func readRemovalPolicy(text []byte) *metadata.RemovalPolicy {
	if len(text) == 0 {
		return nil
	}
	p := metadata.RemovalPolicy{ClockSkew: unset, MinWarning: unset, DefaultAlertAfter: unset,
		DefaultAutoUnlockAfter: unset, AbandonedGrace: unset, LockDelay: unset}
	if json.Unmarshal(text, &p) != nil || p.Exclude == nil || CheckExclude(p.Exclude) != nil ||
		p.Abandoned != metadata.AbandonedReport && p.Abandoned != metadata.AbandonedUnlock ||
		slices.Contains([]metadata.Seconds{p.ClockSkew, p.MinWarning, p.DefaultAlertAfter,
			p.DefaultAutoUnlockAfter, p.AbandonedGrace, p.LockDelay}, unset) {
		return nil
	}
	return &p
}
