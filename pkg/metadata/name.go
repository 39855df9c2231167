package metadata

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes is the length of the longest lock name.
const MaxNameBytes = 256

// CheckName returns an error unless name is a lock name: 1 to 256 bytes of valid UTF-8 without control characters.
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
