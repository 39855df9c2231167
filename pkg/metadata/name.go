package metadata

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes is the length of the longest lock name.
const MaxNameBytes = 256

// CheckName says what is wrong with a lock name, or nil: 1 to 256 bytes of valid UTF-8 without control characters.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("the lock name is empty")
	case len(name) > MaxNameBytes:
		return fmt.Errorf("the lock name has %d bytes, at most %d are allowed", len(name), MaxNameBytes)
	case !utf8.ValidString(name):
		return errors.New("the lock name is not valid UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("the lock name contains a control character")
	}
	return nil
}

// IsReserved reports whether docs/protocol.md gives the field a meaning, so that no attribute can have its name.
func IsReserved(field string) bool {
	return field == FieldMetadata || slices.Contains(ownFields(), field) || slices.Contains(memberFields(), field)
}

// ReservedFields returns all fields to which docs/protocol.md gives a meaning, those that the protocol acts on first.
func ReservedFields() []string {
	return slices.Concat(ownFields(), []string{FieldMetadata}, memberFields())
}

// ownFields are only read from keys of their own.
func ownFields() []string {
	return []string{FieldUUID, FieldAlertAt, FieldAutoUnlockAt, FieldAlive, FieldAsked, FieldExtended,
		FieldAcknowledged}
}

// memberFields are members of the metadata document, or keys of their own.
func memberFields() []string {
	return []string{FieldOwner, FieldHostname, FieldPID, FieldLockedAt, FieldPurpose, FieldBacktrace, FieldClient,
		FieldLockDelay, FieldBootID, FieldProcessStart, FieldPIDNamespace, FieldCgroupID, FieldPodNamespace,
		FieldPodName, FieldPodUID, FieldContainer, FieldDetached}
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
